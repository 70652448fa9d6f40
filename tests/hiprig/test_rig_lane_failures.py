"""When the scheduler itself fails on a thread of a device: runs fail of it, what is in flight is waited for."""

import numpy as np
import pytest
import rig
import trio
import trio.testing
from plait import Graph, RunFailed, open_scheduler
from plait.scheduler import copy_out, device_lanes, flight, state


class Bug(Exception):
    pass


NAMES = [
    (device_lanes.DeviceLanes, "_serve_launch"),
    (device_lanes.DeviceLanes, "waits_for"),
    (device_lanes.DeviceLanes, "follow"),
    (device_lanes.DeviceLanes, "_hear"),
    (copy_out, "_carry_out"),
    (copy_out, "end_out"),
    (device_lanes, "with_holders"),
    (flight.Flight, "enters"),
    (flight.Flight, "enqueued"),
    (flight.Flight, "reached"),
    (flight.Flight, "end"),
    (state.RunState, "settle"),
]


def tree():
    g = Graph("tree")
    ends = []
    for k in range(4):
        x = g.input(f"x{k}", shape=(64,), dtype="float64")
        for _ in range(3):
            x = g.options(device="hip:0").call(np.add, x, 1.0)
        ends.append(x)
        g.output(f"y{k}", x)
    return g, {f"x{k}": np.full(64, float(k)) for k in range(4)}


def breaks(monkeypatch, owner, name, at):
    real, calls = getattr(owner, name), []

    def broken(*args, **kwargs):
        calls.append(1)
        if len(calls) == at:
            raise Bug("on purpose")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, broken)
    return calls


@pytest.mark.parametrize("limit", [None, 100_000], ids=["no limit", "limit"])
@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize(("owner", "name"), NAMES, ids=[name for _, name in NAMES])
async def test_the_run_fails_by_name_and_the_next_one_is_right(monkeypatch, owner, name, at, limit):
    graph, inputs = tree()
    async with open_scheduler(devices=["host", "hip:0"], streams=2, memory_limit=limit) as scheduler:
        with monkeypatch.context() as patched:
            calls = breaks(patched, owner, name, at)
            try:
                outputs = await scheduler.start(graph, inputs)
            except RunFailed as failure:
                assert len(calls) >= at
                assert isinstance(failure.__cause__, Bug)
                assert failure.exceptions[0].stream in str(failure)
                assert failure.exceptions[0].stream.startswith("hip:0/")
            else:  # it is called less often, or the run had ended by then
                assert at > 1 or not calls
                assert np.array_equal(outputs["y3"], np.full(64, 6.0))
        for _ in range(2):
            outputs = await scheduler.start(graph, inputs)
            assert all(np.array_equal(outputs[f"y{k}"], np.full(64, k + 3.0)) for k in range(4))
        if limit is not None:
            assert scheduler.memory["hip:0"].in_use == 0


async def test_what_runs_on_the_device_then_is_waited_for(monkeypatch):
    graph, inputs = tree()
    async with open_scheduler(devices=["host", "hip:0"], streams=2) as scheduler:
        await scheduler.start(graph, inputs)
        with rig.held("compute"):
            breaks(monkeypatch, flight.Flight, "enqueued", 6)  # four copies in, and one that computes, are enqueued
            run = scheduler.start(graph, inputs)
            await trio.to_thread.run_sync(rig.wait_until_queued, "compute")
            await trio.testing.wait_all_tasks_blocked()
            assert not run.done
        with pytest.raises(RunFailed) as caught:
            await run
        assert isinstance(caught.value.__cause__, Bug)
        assert (await scheduler.start(graph, inputs))["y1"][0] == 4.0
