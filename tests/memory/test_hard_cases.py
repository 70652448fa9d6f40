"""Under a limit, what goes wrong or is unusual: full disks, failing maps, odd arrays, odd callables, leftovers."""

from __future__ import annotations

import errno
import gc
import os
import tempfile
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import plait
import pytest
import trio
import trio.testing
from plait.scheduler.memory import spill

KIB = 1024
ROW = (KIB // 8,)


def row(value: float) -> np.ndarray:
    return np.full(ROW, float(value))


def press(g: plait.Graph, count: int = 10) -> None:
    """So many rows at once, then their sums."""
    made = [g.options(nbytes=KIB).call(row, k) for k in range(count)]
    g.barrier()
    for k in range(count // 2):
        g.output(f"pair{k}", g.options(nbytes=KIB).call(np.add, made[k], made[count - 1 - k]))
    g.barrier()


@asynccontextmanager
async def within(limit: int) -> AsyncIterator[plait.Scheduler]:
    with trio.fail_after(30):
        async with plait.open_scheduler(devices="host", streams=2, memory_limit=limit) as scheduler:
            yield scheduler
            assert scheduler.memory["host"].in_use == scheduler.memory["host"].reserved == 0


def masked(x: Any) -> None:
    x[0] = np.ma.masked


def objects(x: Any) -> None:
    x[0] = [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "given", "seen"),
    [
        (masked, np.ma.masked_array(row(1)), lambda x: isinstance(x, np.ma.MaskedArray) and x.mask[0]),
        (objects, np.array([object()] * ROW[0]), lambda x: x[0] == [1, 2, 3]),
    ],
)
async def test_a_copied_input_that_is_no_plain_array_keeps_what_it_is(change: Any, given: Any, seen: Any) -> None:
    g = plait.Graph("odd input")
    x = g.input("x", ROW)
    g.call(change, plait.update(x))
    press(g)
    g.output("x", x)
    async with within(5 * KIB) as scheduler:
        result = await scheduler.run(g, x=given)
    assert seen(result["x"])


async def test_dense_arrays_of_any_axis_order_make_room() -> None:
    def ordered(k: int) -> np.ndarray:
        base = np.arange(128.0).reshape(4, 8, 4) + k
        return base.transpose(1, 0, 2).copy(order="K")

    g = plait.Graph("axis orders")
    made = [g.options(nbytes=KIB).call(ordered, k) for k in range(10)]
    g.barrier()
    for k in range(5):
        g.output(f"pair{k}", g.options(nbytes=KIB).call(np.add, made[k], made[9 - k]))
    async with within(4 * KIB) as scheduler:
        run = scheduler.start(g)
        result = await run
        assert run.memory["host"].moved_in > 0
    for k in range(5):
        assert np.array_equal(result[f"pair{k}"], ordered(k) + ordered(9 - k))


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __call__(self, *given: Any) -> np.ndarray:
        return row(3)


async def test_callables_that_cannot_be_hashed_run_as_any_other() -> None:
    g = plait.Graph("unhashable")
    g.output("b", g.call(Unhashable(), g.call(Unhashable())))
    async with within(10 * KIB) as scheduler:
        assert (await scheduler.run(g))["b"].tolist() == row(3).tolist()


async def test_what_a_function_holds_goes_with_its_graph() -> None:
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    async with within(10 * KIB) as scheduler:
        g = plait.Graph("closure")
        g.output("y", g.call(lambda held=held: row(1)))
        await scheduler.run(g)
        del g, held
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize(
    ("module", "broken"), [(tempfile, "mkstemp"), (os, "pwrite"), (os, "preadv"), (spill.SpillFile, "mapped")]
)
@pytest.mark.parametrize("on_error", ["stop", "isolate"])
async def test_a_disk_that_fails_fails_the_run_alone(
    module: Any, broken: str, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    g = plait.Graph("full disk")
    press(g)
    for k in range(4):
        g.output(f"row{k}", g.options(nbytes=KIB).call(row, 9))
    async with within(4 * KIB) as scheduler:
        with monkeypatch.context() as patched:
            patched.setattr(module, broken, fails)
            run = scheduler.start(g, on_error=on_error)
            try:
                result = await run
            except plait.RunFailed as failed:
                assert failed.exceptions
            else:
                assert on_error == "isolate" and result.failed and result.missing
                for name, value in result.items():
                    assert value.tolist() == row(9).tolist(), name
        assert all(value.tolist() == row(9).tolist() for value in (await scheduler.run(g)).values())


@pytest.mark.parametrize("limit", [None, 10 * KIB])
@pytest.mark.parametrize("on_error", ["stop", "isolate"])
async def test_a_slice_that_the_result_has_not_fails_the_run(limit: int | None, on_error: str) -> None:
    g = plait.Graph("short")
    short = g.call(np.zeros, 3)
    g.output("short", short)
    g.output("element", short[7])
    async with plait.open_scheduler(devices="host", memory_limit=limit) as scheduler:
        run = scheduler.start(g, on_error=on_error)
        with pytest.raises(plait.RunFailed) as caught:
            await run.output("element")
        assert isinstance(caught.value.exceptions[0].__cause__.__cause__, IndexError)  # type: ignore[union-attr]
        if on_error == "isolate":
            result = await run
            assert result["short"].tolist() == [0, 0, 0] and result.missing == ("element",)


def test_the_file_is_used_again_once_nobody_has_it_mapped() -> None:
    file = spill.SpillFile()
    try:
        first = file.reserve(KIB)
        file.write(first, row(1).view(np.uint8))
        given = file.mapped(first)
        file.release(first)
        second = file.reserve(KIB)
        assert second.offset != first.offset
        file.write(second, row(2).view(np.uint8))
        assert given.view(float).tolist() == row(1).tolist()
        del given
        gc.collect()
        assert file.reserve(KIB).offset == first.offset
    finally:
        file.close()


@pytest.mark.parametrize("beside", [1, 2])
async def test_runs_that_items_start_get_room_or_an_error(beside: int) -> None:
    async with within(4 * KIB) as scheduler:
        inner = plait.Graph("inner")
        press(inner)

        async def wait_for_it(a: np.ndarray) -> np.ndarray:
            return np.asarray((await scheduler.run(inner))["pair0"])

        def outer(count: int) -> plait.Graph:
            g = plait.Graph("outer")
            kept = [g.options(nbytes=KIB).call(row, k) for k in range(count)]
            g.output("sum", g.options(nbytes=KIB).call(wait_for_it, kept))
            return g

        result = await scheduler.run(outer(0))  # it has a row to come, and leaves room for three
        assert result["sum"].tolist() == row(9).tolist()

        async def hopeless() -> None:
            with pytest.raises(plait.RunFailed) as caught:
                await scheduler.run(outer(4 - beside), timeout=10)
            assert "OutOfMemory" in str(caught.value.exceptions[0])

        async with trio.open_nursery() as nursery:
            for _ in range(beside):
                nursery.start_soon(hopeless)


async def test_arrays_in_containers_count_once_and_can_go_when_nothing_holds_them_together() -> None:
    def both(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        return [a, b]

    def first(pair: list[np.ndarray]) -> np.ndarray:
        return pair[0]

    g = plait.Graph("containers")
    a, b = (g.options(nbytes=KIB).call(row, k + 1) for k in range(2))
    pair = g.options(nbytes=0).call(both, a, b)
    again = g.options(nbytes=0).call(first, pair)
    g.output("sum", g.options(nbytes=KIB).call(np.add, a, again))
    g.barrier()
    press(g)
    g.output("late", g.options(nbytes=KIB).call(np.add, a, b))
    async with within(5 * KIB) as scheduler:
        run = scheduler.start(g)
        result = await run
        assert run.memory["host"].peak <= 5 * KIB and run.memory["host"].moved_in > 0
        held = scheduler.compile(g)
        assert (await scheduler.run(held))["late"].tolist() == row(3).tolist()
    assert result["sum"].tolist() == row(2).tolist()
    g = plait.Graph("only those")
    a, b = (g.options(nbytes=KIB).call(row, k) for k in range(2))
    pair = g.options(nbytes=0).call(both, a, b)
    g.output("n", g.options(nbytes=0).call(lambda *all: len(all), pair, g.options(nbytes=0).call(first, pair)))
    async with within(20 * KIB) as scheduler:
        run = scheduler.start(g)
        await run
        assert run.memory["host"].peak == 2 * KIB
