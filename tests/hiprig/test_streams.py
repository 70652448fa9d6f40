"""Streams, events and waiting on the rig: device times, priorities, what is not plait's, what follows late."""

import threading

import cupy
import numpy as np
import plait
import pytest
import rig
import trio
import trio.testing
from plait import DeviceError, DeviceLost, Graph
from plait.testing import conformance_kit as kit

NAMED = {
    name: cupy.RawKernel(f'extern "C" __global__ void {name}(float *x) {{ x[0] += 1; }}', name)
    for name in ("high", "low", "filler")
}


def launch(name, array):
    NAMED[name]((1,), (1,), (array,))
    return array


def test_elapsed_is_device_time():
    stream = plait.device("hip:0").stream()
    x = cupy.zeros(4, "f4")
    stream.enqueue(launch, "low", x)
    kit.finish(stream)
    rig.set_kernel_us(20_000)
    start = stream.record()
    for _ in range(3):
        stream.enqueue(launch, "low", x)
    end = stream.record()
    kit.finish(stream)
    assert 0.06 <= end.elapsed(start) < 6
    assert start.elapsed(end) == pytest.approx(-end.elapsed(start))


def test_an_urgent_run_starts_after_at_most_what_is_running():
    """100 items of one run are queued in the device; one of a more urgent run overtakes them all."""
    g = Graph("low")
    launched, seen = threading.Semaphore(0), []

    def low(value):
        launch("low", value)
        launched.release()
        return value

    for k in range(100):
        g.options(device="hip:0").call(low, g.constant(np.zeros(4, "f4"), name=f"x{k}"))
    urgent = Graph("high")
    overtakes = threading.Event()

    there = cupy.zeros(4, "f4")
    cupy.cuda.Stream.null.synchronize()

    def high():
        launch("high", there)
        overtakes.set()

    urgent.options(device="hip:0").call(high)

    async def main():
        async with plait.open_scheduler(streams=2, trace=False) as scheduler:
            await scheduler.run(g)
            await scheduler.run(urgent)
            while launched.acquire(blocking=False):
                pass
            overtakes.clear()
            rig.set_slots(1)
            rig.set_kernel_us(3000)
            with rig.traced() as trace:
                with rig.held("compute"):
                    first = scheduler.start(g)
                    for _ in range(100):
                        if not await trio.to_thread.run_sync(launched.acquire, True, 30):
                            rig.release("compute")
                            raise AssertionError(f"{first.progress}, {await first}")
                    second = scheduler.start(urgent, priority=5)
                    assert await trio.to_thread.run_sync(overtakes.wait, 30)
                await second
                await first
            seen.extend(trace)

    trio.run(main)
    kernels = [operation.name for operation in seen if operation.name in NAMED]
    assert kernels.count("low") == 100
    assert kernels.index("high") <= 1


def test_what_is_waited_for_need_not_be_plaits():
    class Speaks:
        def __init__(self, pointer):
            self.pointer = pointer

        def __cuda_stream__(self):
            return 0, self.pointer

    async def main():
        for ordinal in (0, 1):
            with cupy.cuda.Device(ordinal):
                stream = cupy.cuda.Stream(non_blocking=True)
                x = cupy.zeros(4, "f4")
                for wrap in (lambda s: s, lambda s: s.record(), lambda s: Speaks(s.ptr), lambda s: [s, s.record()]):
                    cupy.cuda.Stream.null.synchronize()
                    rig.hold("compute", ordinal)
                    with stream:
                        launch("low", x)
                    with trio.move_on_after(0.05) as early:
                        await plait.wait(wrap(stream))
                    assert early.cancelled_caught
                    rig.release("compute", ordinal)
                    with trio.fail_after(30):
                        await plait.wait(wrap(stream))
                assert float(x[0]) == 4

    trio.run(main)


def test_an_adopted_stream_is_shared_and_not_owned():
    device = plait.device("hip:0")
    theirs = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(4, "f4")
    cupy.cuda.Stream.null.synchronize()
    for how in (theirs, device.adopt(theirs)):
        mine = device.adopt(how)
        with theirs:
            launch("low", x)
        mine.enqueue(launch, "low", x)
        kit.finish(mine)
        mine.close()
        with pytest.raises(DeviceError):
            mine.record()
        theirs.synchronize()
    assert float(x[0]) == 4
    with pytest.raises(DeviceError, match="is no GPU stream"):
        device.adopt(object())


def test_an_event_is_heard_of_in_its_own_time_however_late_it_is_awaited():
    stream, gate = plait.device("hip:0").stream(), kit.Gate()
    first = stream.record()
    stream.wait(gate)
    second = stream.record()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(plait.wait, second)
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(30):
                await first
            gate.open()

    trio.run(main)


def test_an_event_of_a_lost_device_is_failed_and_never_pending():
    stream = plait.device("hip:1").stream()
    with cupy.cuda.Device(1):
        x = cupy.zeros(4, "f4")
        cupy.cuda.Stream.null.synchronize()
    stream.enqueue(launch, "low", x)
    kit.finish(stream)
    rig.fail_async("kernel", rig.LAUNCH_FAILURE)
    stream.enqueue(launch, "low", x)
    event = stream.record()
    kit.settle(event)
    assert isinstance(event.error, DeviceLost)
    with pytest.raises(DeviceLost):
        _ = event.done
    assert isinstance(stream.error, DeviceLost)
    with pytest.raises(DeviceLost):
        plait.device("hip:1").stream()
    rig.clear()
    again = plait.device("hip:1").stream()
    again.enqueue(launch, "low", x)
    kit.finish(again)


def test_driver_streams_are_pooled():
    device = plait.device("hip:0")
    pointers = set()
    for _ in range(5):
        stream = device.stream(priority=1)
        pointers.add(stream.driver.ptr)
        kit.finish(stream)
        stream.close()
        kit.settle(device.stream().record())
    assert len(pointers) <= 2
    urgent, plain = device.stream(priority=3), device.stream()
    assert urgent.driver.priority < plain.driver.priority


def test_plait_never_uses_the_default_stream():
    g = Graph()
    total = g.buffer("total", (1000,), fill=1)
    for ordinal in (0, 1):
        with g.defaults(device=f"hip:{ordinal}"):
            value = g.call(np.add, g.input(f"x{ordinal}"), np.ones(1000))
            g.call(np.add, value, total[::2].shape[0])
            g.call(lambda t, v: t.__iadd__(v), plait.update(total), value)
    g.copy(total[:500], total[500:])
    g.output("total", total)
    x = np.ones((500, 2)).reshape(-1)[::1]
    inputs = {"x0": x, "x1": np.asfortranarray(np.ones((1000, 2)))[:, 0]}
    expected = plait.run(g, inputs)["total"]
    mine = {}
    with rig.traced() as trace:
        for ordinal in (0, 1):
            with cupy.cuda.Device(ordinal):
                launch("filler", cupy.zeros(4, "f4"))
                cupy.cuda.Stream.null.synchronize()
        found = plait.run(g, inputs)["total"]
    assert np.array_equal(found, expected)
    for operation in trace:
        if operation.name == "filler":
            mine[operation.stream] = 0
    for operation in trace:
        if operation.stream in mine:
            mine[operation.stream] += 1
    assert len(trace) > 10
    assert sorted(mine.values()) == [2, 2], "a fill and a kernel of this test on each default stream, and nothing else"


def test_driver_events_are_pooled():
    """A plan that runs again needs no new ones."""
    g = Graph()
    left = g.options(device="hip:0").call(np.add, g.input("x"), 1)
    right = g.options(device="hip:1").call(np.add, left, 1)
    g.output("y", g.options(device="hip:0").call(np.add, right, left))
    made, cls = [], cupy.cuda.Event

    def counted(*args):
        made[-1] += 1
        return cls(*args)

    async def main():
        async with plait.open_scheduler(streams=2, trace=False) as scheduler:
            for _ in range(12):
                made.append(0)
                assert (await scheduler.run(g, x=np.zeros(3)))["y"].tolist() == [3.0] * 3

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plait.devices.gpu.driver.event_class", lambda: counted)
        trio.run(main)
    copies = 3  # their chunks have events of their own
    assert max(made[2:]) <= copies
