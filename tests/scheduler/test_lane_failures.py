"""When the scheduler itself fails on one of its streams: runs fail of it and name it, and nothing hangs."""

import threading

import numpy as np
import plait
import pytest
import trio
from plait import Graph, RunFailed, open_scheduler
from plait.scheduler import device_lanes, flight, lanes, state, virtual_clock, virtual_devices, virtual_lanes
from plait.scheduler.memory import arbiter
from plait.testing import check_plan
from trio.testing import MockClock


class Bug(Exception):
    pass


def breaks(monkeypatch, owner, name, at=1, bug=None, everywhere=False):
    """Let the ``at``-th call of an internal function on a lane's thread raise, and no other; what counts the calls."""
    real, calls = getattr(owner, name), []

    def broken(*args, **kwargs):
        if everywhere or threading.current_thread() is not threading.main_thread():
            calls.append(1)
            if len(calls) == at:
                raise bug or Bug("on purpose")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, broken)
    return calls


def tree(width=4, depth=3, name="tree", **options):
    g = Graph(name)
    ends = []
    for k in range(width):
        x = g.input(f"x{k}", shape=(8,), dtype="float64")
        for _ in range(depth):
            x = g.options(**options).call(np.add, x, 1.0)
        ends.append(x)
    g.output("y", g.options(**options).call(lambda *parts: sum(part.sum() for part in parts), *ends))
    return g, {f"x{k}": np.full(8, float(k)) for k in range(width)}


def check_failed(failure, cause=Bug, stream="host/"):
    error = failure.exceptions[0]
    assert error.stream.startswith(stream)
    assert error.stream in str(failure)
    assert cause.__name__ in str(failure)
    assert isinstance(failure.__cause__, cause)
    assert isinstance(error.cause.__cause__, cause)


async def fails_and_goes_on(scheduler, graph, inputs, cause=Bug, stream="host/", **options):
    """The run fails of the bug, and the same scheduler then runs the same graph."""
    with pytest.raises(RunFailed) as caught:
        await scheduler.start(graph, inputs, **options)
    check_failed(caught.value, cause, stream)
    assert (await scheduler.start(graph, inputs))["y"] == 8 * (6 + 4 * 3)


HOST = [
    (lanes.Dispatcher, "_pick"),
    (lanes.Dispatcher, "_prepare"),
    (lanes.Dispatcher, "_serve_straight"),
    (lanes.Dispatcher, "_serve_counted"),
    (lanes.Dispatcher, "settle_memory"),
    (lanes, "run_straight"),
    (lanes, "bisect_right"),
    (state.RunState, "promote"),
    (state.RunState, "settle"),
    (state.RunState, "pop"),
    (state.RunState, "release"),
]


@pytest.mark.parametrize("isolate", [False, True], ids=["stop", "isolate"])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(("owner", "name"), HOST, ids=[name for _, name in HOST])
async def test_a_failure_between_items_fails_the_run_and_leaves_the_scheduler_sound(
    monkeypatch, owner, name, at, isolate
):
    graph, inputs = tree()
    slow = threading.Event()

    def pause(*_):  # so long that the run is counted from here on
        slow.wait(0.002)

    if name not in ("_serve_straight", "run_straight", "bisect_right"):
        for _ in range(4):
            graph.call(pause)
    own = graph.buffer("own", (2,), fill=0)
    graph.call(np.copyto, plait.update(own), 1.0)
    calls = breaks(monkeypatch, owner, name, at)
    async with open_scheduler(devices="host", streams=2) as scheduler:
        plan = scheduler.compile(graph)
        check_plan(plan)
        run = scheduler.start(plan, inputs, on_error="isolate" if isolate else "stop")
        try:
            outputs = await run
        except RunFailed as failure:
            assert len(calls) >= at
            check_failed(failure)
        else:  # it is called less often, or another stream had ended the run by then
            assert at > 1
            assert outputs["y"] == 8 * (6 + 4 * 3)
        monkeypatch.undo()
        for _ in range(2):
            assert (await scheduler.start(plan, inputs))["y"] == 8 * (6 + 4 * 3)


@pytest.mark.parametrize("bug", [MemoryError("none left"), RecursionError("too deep"), KeyboardInterrupt()])
async def test_whatever_it_is_that_is_raised(monkeypatch, bug):
    graph, inputs = tree()
    breaks(monkeypatch, lanes, "run_straight", bug=bug)
    async with open_scheduler(devices="host", streams=2) as scheduler:
        await fails_and_goes_on(scheduler, graph, inputs, type(bug))


async def test_all_runs_that_the_stream_could_serve_fail_and_what_is_in_flight_is_waited_for(monkeypatch):
    entered, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hold():
        entered.set()
        assert release.wait(30)
        ended.set()

    held = Graph("held")
    held.call(hold)
    graph, inputs = tree()
    async with open_scheduler(devices="host", streams=2) as scheduler:
        first = scheduler.start(held)
        await trio.to_thread.run_sync(entered.wait)
        breaks(monkeypatch, lanes, "run_straight")
        second = scheduler.start(graph, inputs)
        with pytest.raises(RunFailed) as caught:
            await second
        check_failed(caught.value)
        assert not first.done
        release.set()
        with pytest.raises(RunFailed) as caught:
            await first
        check_failed(caught.value)
        assert ended.is_set()


async def test_waits_for_one_output_and_async_items_end_too(monkeypatch):
    cancelled = []

    async def forever():
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append(1)
            raise

    gate = threading.Event()
    g = Graph()
    g.call(forever)
    g.output("y", g.call(lambda _: 1, g.call(gate.wait)))
    failures = []

    async def wait(run):
        with pytest.raises(RunFailed) as caught:
            await run.output("y")
        failures.append(caught.value)

    async with open_scheduler(devices="host", streams=1) as scheduler:
        run = scheduler.start(g)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, run)
            await trio.testing.wait_all_tasks_blocked()
            breaks(monkeypatch, state.RunState, "settle")
            gate.set()
        with pytest.raises(RunFailed):
            await run
    check_failed(failures[0])
    assert cancelled == [1]


async def test_with_a_memory_limit_every_byte_is_back(monkeypatch):
    graph, inputs = tree(width=6, depth=4)
    for name in ("admits", "produced", "ended"):
        for at in (1, 3):
            async with open_scheduler(devices="host", streams=2, memory_limit=100_000) as scheduler:
                with monkeypatch.context() as patched:
                    breaks(patched, arbiter.Residency, name, at)
                    with pytest.raises(RunFailed) as caught:
                        await scheduler.start(graph, inputs)
                check_failed(caught.value)
                assert scheduler.memory["host"].in_use == 0
                async with scheduler.lease("host", 100_000):
                    pass
                assert (await scheduler.start(graph, inputs))["y"] == 8 * (15 + 6 * 4)


async def test_a_run_that_cannot_even_be_stopped_ends_all_the_same(monkeypatch):
    graph, inputs = tree()
    breaks(monkeypatch, lanes, "run_straight")
    breaks(monkeypatch, state.RunState, "stop")
    async with open_scheduler(devices="host", streams=2) as scheduler:
        await fails_and_goes_on(scheduler, graph, inputs)


async def test_without_a_thread_runs_fail_and_say_so(monkeypatch):
    def none(*_):
        raise RuntimeError("can't start new thread")

    graph, inputs = tree()
    async with open_scheduler(devices="host", streams=2) as scheduler:
        with monkeypatch.context() as patched:
            patched.setattr(trio.lowlevel, "start_thread_soon", none)
            with pytest.raises(RunFailed) as caught:
                await scheduler.start(graph, inputs)
    assert "can't start new thread" in str(caught.value)


DEVICE = [
    (virtual_lanes.VirtualDispatcher, "_pick"),
    (virtual_lanes.VirtualDispatcher, "_serve_host"),
    (virtual_lanes.VirtualDispatcher, "_settle"),
    (virtual_lanes.VirtualDispatcher, "_arrive"),
    (device_lanes.DeviceLanes, "_serve_launch"),
    (device_lanes.DeviceLanes, "waits_for"),
    (device_lanes.DeviceLanes, "tail_for"),
    (virtual_devices.VirtualDeviceLanes, "_serve_out"),
    (virtual_devices.VirtualDeviceLanes, "_brought_out"),
    (virtual_clock.Drive, "now_ns"),
    (flight.Flight, "enqueued"),
    (flight.Flight, "enters"),
    (flight.Flight, "end"),
    (flight.Flight, "reached"),
    (state.RunState, "settle"),
]


@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize(("owner", "name"), DEVICE, ids=[name for _, name in DEVICE])
def test_on_simulated_devices_too(monkeypatch, owner, name, at):
    graph, inputs = tree(device="cuda:1", cost=1e-3)
    z = graph.options(cost=1e-3).call(np.negative, graph.input("z", shape=(2,), dtype="float64"))
    graph.output("z", z)
    inputs["z"] = np.ones(2)

    async def main():
        calls = []
        async with open_scheduler(devices=plait.machine("8xh100"), streams=2) as scheduler:
            plan = scheduler.compile(graph)
            run = scheduler.start(plan, inputs)
            with monkeypatch.context() as patched:
                calls = breaks(patched, owner, name, at, everywhere=True)
                try:
                    await run
                except RunFailed as failure:
                    assert len(calls) >= at
                    check_failed(failure, stream="")
                else:
                    assert len(calls) < at
            assert (await scheduler.start(plan, inputs))["y"] == 8 * (6 + 4 * 3)

    trio.run(main, clock=MockClock(autojump_threshold=0))
