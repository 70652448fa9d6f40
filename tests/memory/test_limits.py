"""Runs under a memory limit: what waits, what is moved, what is refused, what is left afterwards."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import plait
import pytest
import trio
from plait.testing import random_program, run_serial
from plait.testing.soak import soak_memory

KIB = 1024
ROW = (KIB // 8,)


def row(value: float) -> np.ndarray:
    return np.full(ROW, float(value))


def rows(g: plait.Graph, count: int) -> list[Any]:
    return [g.options(nbytes=KIB, name=f"row{k}").call(row, k) for k in range(count)]


async def run_within(graph: plait.Graph, limit: int, inputs: dict[str, Any] | None = None, streams: int = 2) -> Any:
    async with plait.open_scheduler(devices="host", streams=streams, memory_limit=limit) as scheduler:
        with trio.fail_after(30):
            run = scheduler.start(graph, inputs or {})
            result = await run
        assert scheduler.memory["host"].in_use == scheduler.memory["host"].reserved == 0
    assert run.memory["host"].peak <= limit
    return result, run.memory["host"]


async def test_what_is_not_in_use_makes_room_and_comes_back() -> None:
    g = plait.Graph("all at the end")
    made = rows(g, 12)
    total = g.options(nbytes=KIB).call(np.add, made[0], made[11])
    for each in made[1:11]:
        total = g.options(nbytes=KIB).call(np.add, total, each)
    g.output("total", total)
    barrier = plait.Graph("with a barrier")
    made = rows(barrier, 12)
    barrier.barrier()
    for k in range(6):
        barrier.output(f"pair{k}", barrier.options(nbytes=KIB).call(np.add, made[k], made[11 - k]))
    result, _ = await run_within(g, 4 * KIB)
    assert result["total"].tolist() == row(66).tolist()
    result, use = await run_within(barrier, 4 * KIB)
    assert all(result[f"pair{k}"].tolist() == row(11).tolist() for k in range(6))
    assert use.moved_out > 0 and use.moved_in > 0


async def test_outputs_that_do_not_fit_together_are_delivered_all_and_are_the_callers() -> None:
    g = plait.Graph("many outputs")
    for k, each in enumerate(rows(g, 20)):
        g.output(f"row{k}", each)
    result, use = await run_within(g, 3 * KIB)
    assert use.moved_out >= 16 * KIB
    for k in range(20):
        assert np.array_equal(result[f"row{k}"], row(k))
        result[f"row{k}"][:] = -k  # may be written, and touches no other
    assert [result[f"row{k}"][5] for k in range(20)] == [-k for k in range(20)]


async def test_an_output_taken_early_counts_no_longer_and_stays_as_it_was() -> None:
    g = plait.Graph("early")
    first, *others = rows(g, 10)
    g.output("first", first)
    g.barrier()
    last = g.options(nbytes=KIB).call(np.add, first, others[-1])
    for each in others[:-1]:
        last = g.options(nbytes=KIB).call(np.add, last, each)
    g.output("last", last)
    async with plait.open_scheduler(devices="host", memory_limit=3 * KIB) as scheduler:
        run = scheduler.start(g)
        early = await run.output("first")
        assert early.tolist() == row(0).tolist()
        assert (await run)["last"].tolist() == row(45).tolist()
        assert early.tolist() == row(0).tolist()


async def test_buffers_are_made_when_first_used_and_inputs_that_change_are_copied() -> None:
    g = plait.Graph("buffers")
    x = g.input("x", ROW, "float64")
    g.call(np.add, x, 1.0, out=plait.update(x))
    buffers = [g.buffer(f"b{k}", ROW, "float64", fill=k) for k in range(10)]
    for each in buffers:
        g.call(np.add, each, x, out=plait.update(each))
        g.output(each.name, g.options(nbytes=8).call(np.sum, each))
    g.output("x", x)
    given = row(1)
    result, _ = await run_within(g, 3 * KIB + 200, {"x": given})
    assert [result[f"b{k}"] for k in range(10)] == [(k + 2) * ROW[0] for k in range(10)]
    assert given.tolist() == row(1).tolist()
    assert result["x"].tolist() == row(2).tolist()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[::-1],
        lambda a: a.reshape(8, -1).T,
        lambda a: a[3:7].view("uint8"),
        lambda a: a,
        lambda a: a[0:0],
        lambda a: np.lib.stride_tricks.as_strided(a, (2, ROW[0] // 2), (0, 8), writeable=False),
    ],
)
async def test_views_go_and_come_back_with_what_they_look_into(view: Callable[[np.ndarray], np.ndarray]) -> None:
    g = plait.Graph("views")
    base = g.options(nbytes=KIB).call(np.arange, float(ROW[0]))
    looked = g.options(nbytes=KIB).call(view, base)
    others = rows(g, 5)
    g.barrier()
    g.output("sum", g.options(nbytes=KIB).call(sum_of, *others[:2]))
    g.output("more", g.options(nbytes=KIB).call(sum_of, *others[2:4]))
    g.barrier()
    g.output("looked", g.options(nbytes=KIB).call(np.copy, looked))
    g.output("base", g.options(nbytes=KIB).call(np.copy, base))
    result, _ = await run_within(g, 5 * KIB)
    assert np.array_equal(result["looked"], view(np.arange(float(ROW[0]))))
    assert np.array_equal(result["base"], np.arange(float(ROW[0])))


def sum_of(*parts: np.ndarray) -> np.ndarray:
    return np.add.reduce(parts)


async def test_what_cannot_be_moved_stays_and_the_rest_makes_room() -> None:
    g = plait.Graph("odd values")
    pair = g.options(nbytes=2 * KIB).call(lambda: [row(1), {"x": row(2)}])
    masked = g.options(nbytes=KIB).call(lambda: np.ma.masked_array(row(3)))
    text = g.call(lambda: "text")
    objects = g.options(nbytes=KIB).call(lambda: np.array([None, "x"] * 4, dtype=object))
    others = rows(g, 8)
    g.barrier()
    for k in range(4):
        g.output(f"pair{k}", g.options(nbytes=KIB).call(np.add, others[k], others[k + 4]))
    g.output(
        "odd",
        g.options(nbytes=0).call(
            lambda *values: str([type(value).__name__ for value in values]), pair, masked, text, objects
        ),
    )
    result, use = await run_within(g, 9 * KIB)
    assert result["odd"] == "['list', 'MaskedArray', 'str', 'ndarray']"
    assert use.moved_out > 0


async def test_mapped_files_count_nothing(tmp_path: Any) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.arange(10 * ROW[0], dtype="float64"))
    g = plait.Graph("mapped")
    data = g.call(np.load, str(path), mmap_mode="r")
    for k in range(10):
        part = g.options(nbytes=KIB).call(np.array, data[k * ROW[0] : (k + 1) * ROW[0]])
        g.output(f"sum{k}", g.options(nbytes=8).call(np.sum, part))
    result, use = await run_within(g, 3 * KIB)
    assert use.moved_out == 0
    assert result["sum9"] == np.arange(9 * ROW[0], 10 * ROW[0], dtype="float64").sum()
    assert mmap.ALLOCATIONGRANULARITY


async def test_an_item_that_alone_needs_too_much_is_refused_with_the_numbers() -> None:
    g = plait.Graph("too large")
    a, b = rows(g, 2)
    g.output("sum", g.options(nbytes=KIB, name="add them").call(np.add, a, b))
    async with plait.open_scheduler(devices="host", memory_limit=3 * KIB - 1) as scheduler:
        with pytest.raises(
            plait.PlanError, match=r"'add them'.*needs 3072 bytes of host at once.*limit is 3071.*'row0'"
        ):
            scheduler.compile(g)
        async with plait.open_scheduler(devices="host") as other:
            plan = other.compile(g)  # without a limit
        with pytest.raises(plait.PlanError, match="'add them'"):
            scheduler.start(plan)
    await run_within(g, 3 * KIB)


async def test_a_result_too_large_for_its_place_is_told_with_who_holds_what() -> None:
    g = plait.Graph("no way")
    kept = g.options(name="kept").call(lambda: [row(1), row(2)])  # two rows that cannot be moved
    wide = g.options(name="wide").call(lambda: np.ones(3 * ROW[0]))
    g.output("n", g.options(nbytes=4 * KIB, name="both").call(lambda a, b: np.ones(4 * ROW[0]), kept, wide))
    async with plait.open_scheduler(devices="host", memory_limit=6 * KIB) as scheduler:
        with pytest.raises(plait.RunFailed) as caught:
            await scheduler.start(g)
        assert scheduler.memory["host"].in_use == 0
    cause = caught.value.exceptions[0].__cause__
    assert isinstance(cause, plait.OutOfMemory)
    text = str(cause)
    for said in ("host:", "limit 6144", "'kept' of graph 'no way' (cannot be moved)", "'wide'", "tried:"):
        assert said in text


async def test_runs_share_a_limit_and_none_starves() -> None:
    graphs = []
    for number in range(6):
        g = plait.Graph(f"run{number}")
        made = rows(g, 8)
        g.barrier()
        for k in range(4):
            g.output(f"pair{k}", g.options(nbytes=KIB).call(np.add, made[k], made[7 - k]))
        graphs.append(g)
    async with plait.open_scheduler(devices="host", streams=3, memory_limit=4 * KIB) as scheduler:
        with trio.fail_after(60):
            runs = [scheduler.start(g, priority=number % 3) for number, g in enumerate(graphs)]
            for run in runs:
                assert all(value.tolist() == row(7).tolist() for value in (await run).values())
        use = scheduler.memory["host"]
    assert use.in_use == 0 and use.reserved == 0 and 0 < use.peak <= 4 * KIB


@pytest.mark.parametrize("how", ["fail", "isolate", "cancel"])
async def test_what_ends_early_gives_all_back(how: str) -> None:
    g = plait.Graph("ends early")
    made = rows(g, 8)
    g.barrier()

    def broken(a: np.ndarray, b: np.ndarray) -> None:
        raise ValueError("broken")

    for k in range(4):
        work = broken if k == 2 and how != "cancel" else np.add
        g.output(f"pair{k}", g.options(nbytes=KIB).call(work, made[k], made[7 - k]))
    if how == "cancel":
        g.call(trio.sleep_forever)
    async with plait.open_scheduler(devices="host", memory_limit=4 * KIB) as scheduler:
        run = scheduler.start(g, on_error="isolate" if how == "isolate" else "stop")
        if how == "cancel":
            await run.output("pair0")
            run.cancel()
        if how == "isolate":
            result = await run
            assert result.missing == ("pair2",)
            assert all(result[f"pair{k}"].tolist() == row(7).tolist() for k in (0, 1, 3))
        else:
            with pytest.raises(plait.RunFailed):
                await run
        use = scheduler.memory["host"]
        assert use.in_use == use.reserved == 0
        if how != "cancel":
            await scheduler.run(g, on_error="isolate")  # and the scheduler is as good as new


async def test_async_items_wait_for_memory_as_well() -> None:
    async def fetch(k: int) -> np.ndarray:
        await trio.lowlevel.checkpoint()
        return row(k)

    g = plait.Graph("async")
    made = [g.options(nbytes=KIB).call(fetch, k) for k in range(8)]
    g.barrier()
    for k in range(4):
        g.output(f"pair{k}", g.options(nbytes=KIB).call(np.add, made[k], made[7 - k]))
    result, use = await run_within(g, 4 * KIB)
    assert all(result[f"pair{k}"].tolist() == row(7).tolist() for k in range(4))
    assert use.moved_out > 0


async def test_the_users_priority_comes_before_saving_moves() -> None:
    order: list[int] = []

    def note(k: int, a: np.ndarray) -> None:
        order.append(k)

    g = plait.Graph("urgent")
    for k in range(10):
        made = g.options(nbytes=KIB, priority=k).call(row, k)
        g.options(priority=k).call(note, k, made)
    await run_within(g, 2 * KIB, streams=1)
    assert order == list(range(9, -1, -1))


@pytest.mark.parametrize("streams", [1, 2, 5])
async def test_random_programs_in_hardly_enough_memory_equal_the_oracle(streams: int) -> None:
    moved = await soak_memory(range(streams * 1000, streams * 1000 + 60), streams)
    assert moved >= 12  # a fifth of them


async def test_a_limit_changes_no_byte() -> None:
    for seed in range(8):
        program = random_program(seed)
        expected = run_in_thread = await trio.to_thread.run_sync(
            lambda program=program: run_serial(program.graph, **program.inputs)
        )
        async with plait.open_scheduler(devices="host", memory_limit=1 << 20) as scheduler:
            run = scheduler.start(program.graph, program.inputs)
            result = await run
        assert run.memory["host"].moved_out == 0
        assert all(np.array_equal(result[name], value) for name, value in run_in_thread.items()), (seed, expected)
