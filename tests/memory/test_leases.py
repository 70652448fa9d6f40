"""Leases: memory for the caller's own code, in turn with runs."""

from __future__ import annotations

import numpy as np
import plait
import pytest
import trio

KIB = 1024


async def test_a_lease_waits_for_its_turn_and_items_for_the_lease() -> None:
    g = plait.Graph("rows")
    made = [g.options(nbytes=KIB).call(np.zeros, KIB // 8) for _ in range(3)]
    g.output("sum", g.options(nbytes=KIB).call(np.add, made[0], made[1]))
    async with plait.open_scheduler(devices="host", memory_limit=4 * KIB) as scheduler:
        async with scheduler.lease("host", 3 * KIB) as lease:
            assert (lease.device, lease.nbytes, lease.in_use) == ("host", 3 * KIB, 0)
            assert scheduler.memory["host"].reserved == 3 * KIB
            run = scheduler.start(g)
            with trio.move_on_after(0.05) as waited:
                await run
            assert waited.cancelled_caught and not run.done
        with trio.fail_after(10):
            await run
        assert scheduler.memory["host"].reserved == 0


async def test_leases_are_served_in_order_and_a_cancelled_one_lets_others_by() -> None:
    served: list[str] = []
    async with plait.open_scheduler(devices="host", memory_limit=100) as scheduler:

        async def hold(name: str, nbytes: int, entered: trio.Event, leave: trio.Event) -> None:
            async with scheduler.lease("host", nbytes):
                served.append(name)
                entered.set()
                await leave.wait()

        async with trio.open_nursery() as nursery:
            first, leave = trio.Event(), trio.Event()
            nursery.start_soon(hold, "first", 80, first, leave)
            await first.wait()
            with trio.move_on_after(0.05):
                async with scheduler.lease("host", 90):
                    raise AssertionError("there is no room")
            second, third = trio.Event(), trio.Event()
            nursery.start_soon(hold, "second", 90, second, leave)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(hold, "third", 10, third, leave)
            await trio.testing.wait_all_tasks_blocked()
            assert served == ["first"]  # the third would fit, and would keep the second from ever fitting
            leave.set()
            await third.wait()
        assert sorted(served) == ["first", "second", "third"]
        assert scheduler.memory["host"].reserved == 0


async def test_wrong_leases_say_what_to_change() -> None:
    async with plait.open_scheduler(devices="host", memory_limit=100) as scheduler:
        with pytest.raises(plait.PlanError, match="101 bytes of host can never be: its memory_limit is 100"):
            async with scheduler.lease("host", 101):
                pass
        with pytest.raises(plait.PlanError, match=r"no device 'cuda:9'.*has host"):
            scheduler.lease("cuda:9", 10)
        with pytest.raises(plait.PlanError, match="whole number of bytes"):
            scheduler.lease("host", 1.5)  # type: ignore[arg-type]
    with pytest.raises(plait.PlaitError, match="closed"):
        scheduler.lease("host", 10)


async def test_without_a_limit_a_lease_does_not_wait() -> None:
    async with (
        plait.open_scheduler(devices="host") as scheduler,
        scheduler.lease("host", 1 << 50),
        scheduler.lease("host", 1 << 50),
    ):
        assert scheduler.memory == {}


async def test_what_is_in_nobodys_use_makes_room_for_a_lease() -> None:
    g = plait.Graph("holds")
    made = [g.options(nbytes=KIB).call(np.full, KIB // 8, float(k)) for k in range(3)]
    gate = trio.Event()

    async def wait() -> None:
        await gate.wait()

    waits = g.call(wait)
    total = g.options(nbytes=KIB, after=[waits.item]).call(np.add, made[0], made[1])
    g.output("total", g.options(nbytes=KIB).call(np.add, total, made[2]))
    async with plait.open_scheduler(devices="host", memory_limit=4 * KIB) as scheduler:
        run = scheduler.start(g)
        while run.progress.done < 3:
            await trio.sleep(0.001)  # until the rows are made
        with trio.fail_after(10):
            async with scheduler.lease("host", 4 * KIB):
                assert scheduler.memory["host"].in_use == 0
                gate.set()
        assert (await run)["total"][0] == 3.0
