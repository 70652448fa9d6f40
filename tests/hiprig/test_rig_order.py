"""The rig keeps the order of streams, priorities, events and host functions, and takes the time that is set."""

from __future__ import annotations

import threading

import cupy
import pytest
import rig
from rig_kit import add, double, number, pinned, runtime, stream, value

WAIT = 30  # seconds, for what comes in microseconds


def test_a_stream_runs_in_order() -> None:
    on, x = stream(), number()
    with rig.held("compute"):
        for _ in range(3):
            add(on, x)
            double(on, x)
        assert not on.done
    assert value(x) == 14


def test_streams_do_not_wait_for_one_another() -> None:
    held, free, x, y = stream(), stream(), number(), number()
    target = cupy.empty(64, "u1")
    with rig.held("h2d"):
        target.set(pinned(64), stream=held)
        add(held, x)
        add(free, y)
        free.synchronize()
        assert not held.done
    assert (value(x), value(y)) == (1, 1)


def test_null_stream_waits_for_blocking_streams_only() -> None:
    x, blocking, non_blocking = number(), cupy.cuda.Stream(), stream()
    with rig.held("compute"):
        add(blocking, x)
        behind = cupy.cuda.Stream.null.record()
        non_blocking.record().synchronize()
        assert not behind.done
    behind.synchronize()
    assert value(x) == 1


def test_blocking_streams_wait_for_the_null_stream() -> None:
    x, blocking = number(), cupy.cuda.Stream()
    with rig.held("compute"):
        add(cupy.cuda.Stream.null, x)
        behind = blocking.record()
        assert not behind.done
    behind.synchronize()
    assert value(x) == 1


def test_queued_work_of_a_high_priority_stream_starts_first() -> None:
    rig.set_slots(1)
    low, second, high, x = stream(1), stream(1), stream(-1), number()
    with rig.traced() as found:
        with rig.held("compute"):
            for on in (low, second, high):
                add(on, x)
                add(on, x)
            rig.wait_until_queued("compute", 3)
        for on in (low, second, high):
            on.synchronize()
    rig.set_slots(4)
    streams = [operation.stream for operation in found if operation.kind == "kernel"]
    assert streams[:2] == [high.ptr, high.ptr]
    assert sorted(streams[2:]) == sorted([low.ptr, second.ptr] * 2)


@pytest.mark.parametrize(("asked", "given"), [(-5, -1), (-1, -1), (0, 0), (1, 1), (5, 1)])
def test_priorities_are_clamped(asked: int, given: int) -> None:
    assert stream(asked).priority == given


def test_event_is_done_when_the_work_before_it_is() -> None:
    on, x, event = stream(), number(), cupy.cuda.Event()
    assert event.done  # never recorded
    with rig.held("compute"):
        add(on, x)
        event.record(on)
        assert not event.done
    event.synchronize()
    assert event.done
    assert value(x) == 1


def test_elapsed_time() -> None:
    on, x, begin, end = stream(), number(), cupy.cuda.Event(), cupy.cuda.Event()
    rig.set_kernel_us(5000)
    begin.record(on)
    add(on, x)
    end.record(on)
    end.synchronize()
    assert cupy.cuda.get_elapsed_time(begin, end) >= 5
    with pytest.raises(runtime.CUDARuntimeError):
        cupy.cuda.get_elapsed_time(begin, cupy.cuda.Event(disable_timing=True))


def test_stream_waits_for_an_event_of_another() -> None:
    first, second, x = stream(), stream(), number()
    with rig.held("compute"):
        add(first, x)
        second.wait_event(first.record())
        first.record()  # not what `second` waits for
        double(second, x)
        add(second, x)
        assert not second.done
    assert value(x) == 3


def test_stream_waits_for_an_event_of_another_device() -> None:
    x, y = number(0), number(1)
    there = stream()
    with cupy.cuda.Device(1):
        here = stream()
        with rig.held("compute", 0):
            with cupy.cuda.Device(0):
                add(there, x)
                event = there.record()
            here.wait_event(event)
            add(here, y)
            assert not here.done
        here.synchronize()
    assert (value(x), value(y)) == (1, 1)


def test_host_function_runs_in_order_on_a_foreign_thread() -> None:
    on, x, seen, ran = stream(), number(), [], threading.Event()

    def note(argument: object) -> None:
        seen.append((argument, threading.get_ident()))
        ran.set()

    with rig.held("compute"):
        add(on, x)
        on.launch_host_func(note, "first")
        after = on.record()
        assert not seen
    assert ran.wait(WAIT)
    after.synchronize()
    assert seen[0][0] == "first"
    assert seen[0][1] != threading.get_ident()


def test_stream_waits_for_its_host_function() -> None:
    on, x, go = stream(), number(), threading.Event()
    on.launch_host_func(lambda _: go.wait(WAIT), None)
    add(on, x)
    assert not on.done
    go.set()
    on.synchronize()
    assert value(x) == 1


def test_synchronize_leaves_python_to_host_functions() -> None:
    on, seen = stream(), []
    for count in range(20):
        on.launch_host_func(seen.append, count)
    on.synchronize()
    assert seen == list(range(20))


def test_copies_take_the_set_bandwidth() -> None:
    on, small, large = stream(), 250_000, 2_000_000
    target, source = cupy.empty(large, "u1"), pinned(large)
    rig.set_gbps(0.1)
    with rig.traced() as found:
        target[:small].set(source[:small], stream=on)
        target.set(source, stream=on)
        target.get(stream=on, out=source, blocking=False)
        on.synchronize()
    durations = {(of.kind, of.nbytes): (of.end_ns - of.begin_ns) / 1e9 for of in found if of.stream == on.ptr}
    for (_, size), seconds in durations.items():
        assert seconds >= size / 0.1e9
    assert set(durations) == {("h2d", small), ("h2d", large), ("d2h", large)}
    assert durations["h2d", large] / durations["h2d", small] > 2


def test_copies_of_both_directions_and_kernels_overlap() -> None:
    up, down, compute, x = stream(), stream(), stream(), number()
    target, source, there, back = cupy.empty(64, "u1"), pinned(64), cupy.empty(64, "u1"), pinned(64)
    with rig.held("h2d"):
        target.set(source, stream=up)
        there.get(stream=down, out=back, blocking=False)
        add(compute, x)
        down.synchronize()
        compute.synchronize()
        assert not up.done
    up.synchronize()


def test_as_many_kernels_run_as_there_are_slots() -> None:
    rig.set_slots(2)
    streams, x = [stream() for _ in range(4)], number()
    rig.set_kernel_us(3000)
    with rig.traced() as found:
        with rig.held("compute"):
            for on in streams:
                add(on, x)
            rig.wait_until_queued("compute", 4)
        for on in streams:
            on.synchronize()
    rig.set_slots(4)
    moments = sorted([(of.begin_ns, 1) for of in found] + [(of.end_ns, -1) for of in found])
    running = [sum(change for _, change in moments[: i + 1]) for i in range(len(moments))]
    assert len(found) == 4
    assert max(running) == 2


def test_hold_lets_nothing_begin_and_release_lets_it_go_on() -> None:
    on, x = stream(), number()
    rig.hold("compute", 0)
    add(on, x)
    rig.wait_until_queued("compute")
    assert runtime.streamQuery(on.ptr) == 600
    rig.release("compute", 0)
    on.synchronize()
    assert value(x) == 1


def test_waiting_for_a_device_waits_for_streams_that_were_destroyed() -> None:
    on, x = stream(), number()
    rig.set_kernel_us(5000)
    add(on, x)
    add(on, x)
    del on
    assert value(x) == 2


@pytest.mark.parametrize(
    "command",
    [
        "dance",
        "hold legs 0",
        "hold compute 9",
        "hold compute 0 for 3",
        "set mood 1",
        "set gbps",
        "set gbps 1 legs",
        "set slots 1 h2d 9",
        "set memory_mb 1 9",
        "lose 9 719",
        "lose 0",
        "fail hipMalloc",
    ],
)
def test_unknown_commands_are_refused(command: str) -> None:
    with pytest.raises(ValueError, match="does not obey"):
        rig.control(command)


def test_streams_of_many_threads_lose_nothing() -> None:
    counts, done, lock = [number(0), number(1)], [], threading.Lock()

    def work(device: int) -> None:
        with cupy.cuda.Device(device):
            for round_ in range(30):
                on = stream(round_ % 3 - 1)
                add(on, counts[device])
                on.launch_host_func(note, round_)
                if round_ % 2:
                    on.record().synchronize()

    def note(argument: object) -> None:
        with lock:
            done.append(argument)

    workers = [threading.Thread(target=work, args=(k % 2,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT)
    assert [value(count) for count in counts] == [90, 90]
    assert len(done) == 180


def test_copies_between_devices_have_an_engine_of_their_own() -> None:
    source, x = number(0, 42), number(1)
    with cupy.cuda.Device(1):
        target, across, on = number(1), stream(), stream()
        with rig.traced() as found:
            with rig.held("peer", 1):
                target.data.copy_from_device_async(source.data, 4, across)
                add(on, x)
                on.synchronize()
                assert not across.done
            across.synchronize()
    assert value(target) == 42
    assert [of.kind for of in found if of.stream == across.ptr] == ["peer"]


def test_each_engine_has_its_own_bandwidth() -> None:
    size = 400_000
    ends, on, host = [cupy.empty(size, "u1") for _ in range(2)], stream(), pinned(size)
    rig.set_gbps(0.1, "h2d", 0)
    rig.set_gbps(0.05, "compute")
    with rig.traced() as found:
        ends[0].set(host, stream=on)
        ends[1].data.copy_from_device_async(ends[0].data, size, on)
        on.synchronize()
    took_ms = {of.kind: (of.end_ns - of.begin_ns) / 1e6 for of in found if of.stream == on.ptr}
    assert took_ms["h2d"] >= 4
    assert took_ms["d2d"] >= 8


def test_copy_engines_may_have_more_slots() -> None:
    first, second, target = stream(), stream(), cupy.empty(200_000, "u1")
    rig.set_slots(2, "h2d", 0)
    rig.set_gbps(0.001)  # 100 ms each, so that the second begins in time on a busy machine too
    with rig.traced() as found:
        with rig.held("h2d"):
            for on, part in ((first, slice(0, 100_000)), (second, slice(100_000, 200_000))):
                target[part].set(pinned(100_000), stream=on)
            rig.wait_until_queued("h2d", 2)
        first.synchronize()
        second.synchronize()
    one, other = found
    assert other.begin_ns < one.end_ns


def test_held_host_functions_are_not_delivered() -> None:
    on, x, ran = stream(), number(), threading.Event()
    with rig.held("host"):
        on.launch_host_func(lambda _: ran.set(), None)
        add(on, x)
        rig.wait_until_queued("host")
        assert not ran.is_set()
        assert not on.done
    assert ran.wait(WAIT)
    assert value(x) == 1


def test_an_engine_may_be_held_after_some_operations() -> None:
    on, x = stream(), number()
    with rig.held("compute", after=2):
        add(on, x)
        add(on, x)
        on.synchronize()
        add(on, x)
        rig.wait_until_queued("compute")
        assert not on.done
    assert value(x) == 3
