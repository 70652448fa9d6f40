"""Conformance of streams: order, waiting for each other, priorities. First of the ``conformance_*`` files.

Every test takes a ``platform`` and nothing else, so the suite can be called directly; ``plugin.py`` runs it.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from plait.devices.protocol import Platform, Stream
from plait.errors import DeviceError
from plait.testing import conformance_kit as kit


def test_operations_run_in_order(platform: Platform) -> None:
    stream, log = platform.devices()[0].stream(), list[int]()
    for number in range(2000):
        stream.enqueue(log.append, number)
    kit.finish(stream)
    assert log == list(range(2000))


def test_order_is_kept_however_operations_arrive(platform: Platform) -> None:
    stream, log = platform.devices()[0].stream(), list[int]()
    for number in range(600):
        stream.enqueue(log.append, number)
        if number % 3 == 0:
            stream.record()
        if number % 50 == 0:
            kit.finish(stream)
    kit.finish(stream)
    assert log == list(range(600))


def test_arguments_reach_the_function(platform: Platform) -> None:
    stream, got = platform.devices()[0].stream(), list[object]()
    stream.enqueue(lambda *args, **kwargs: got.append((args, kwargs)), 1, "b", function=2, self=3)
    kit.finish(stream)
    assert got == [((1, "b"), {"function": 2, "self": 3})]


def test_enqueue_does_not_wait_for_the_work(platform: Platform) -> None:
    stream, gate, log = platform.devices()[0].stream(), kit.Gate(), list[str]()
    stream.wait(gate)
    stream.enqueue(log.append, "ran")
    kit.give_others_a_chance(platform.devices()[0])
    assert log == [], "the stream did not hold what was enqueued behind a pending event"
    gate.open()
    kit.finish(stream)
    assert log == ["ran"]


def test_several_threads_enqueue_on_one_stream(platform: Platform) -> None:
    stream, log, start = platform.devices()[0].stream(), list[tuple[int, int]](), threading.Barrier(4)

    def send(sender: int) -> None:
        start.wait(kit.TIMEOUT_S)
        for number in range(500):
            stream.enqueue(log.append, (sender, number))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kit.finish(stream)
    for sender in range(4):
        assert [number for who, number in log if who == sender] == list(range(500))


def test_a_stream_runs_one_operation_at_a_time(platform: Platform) -> None:
    stream, inside, most = platform.devices()[0].stream(), list[int](), list[int]()
    block = np.ones(20_000)

    def work() -> None:
        inside.append(1)
        np.add(block, block)  # lets other threads in
        most.append(len(inside))
        inside.pop()

    for _ in range(200):
        stream.enqueue(work)
    kit.finish(stream)
    assert set(most) == {1}


def test_a_blocked_stream_holds_up_no_other(platform: Platform) -> None:
    device, gate, log = platform.devices()[0], kit.Gate(), list[int]()
    blocked = [device.stream(priority=5) for _ in range(4 * (os.cpu_count() or 1) + 16)]
    for number, stream in enumerate(blocked):
        stream.enqueue(int)
        stream.wait(gate)
        stream.enqueue(log.append, number)
    free = device.stream()
    free.enqueue(log.append, -1)
    kit.finish(free)
    assert log == [-1]
    gate.open()
    kit.finish(*blocked)
    assert sorted(log) == list(range(-1, len(blocked)))


def test_wait_orders_two_streams(platform: Platform) -> None:
    device, gate, log = platform.devices()[0], kit.Gate(), list[str]()
    first, second = device.stream(), device.stream(kind="copy")
    first.wait(gate)
    first.enqueue(log.append, "first")
    second.wait(first.record())
    second.enqueue(log.append, "second")
    kit.give_others_a_chance(device)
    assert log == []
    gate.open()
    kit.finish(first, second)
    assert log == ["first", "second"]


def test_wait_for_a_stream_takes_what_it_holds_at_that_moment(platform: Platform) -> None:
    device, now, later, log = platform.devices()[0], kit.Gate(), kit.Gate(), list[str]()
    first, second = device.stream(), device.stream()
    first.wait(now)
    first.enqueue(log.append, "held")
    second.wait(first)
    first.wait(later)
    first.enqueue(log.append, "later")
    second.enqueue(log.append, "second")
    kit.give_others_a_chance(device)
    assert log == []
    now.open()
    kit.finish(second)
    assert log == ["held", "second"]
    later.open()
    kit.finish(first)
    assert log == ["held", "second", "later"]


def test_wait_for_a_stream_in_a_ring_of_moments(platform: Platform) -> None:
    """Each waits for what the other held before, so there is no deadlock."""
    device, log = platform.devices()[0], list[int]()
    left, right = device.stream(), device.stream()
    for number in range(0, 200, 2):
        left.enqueue(log.append, number)
        right.wait(left)
        right.enqueue(log.append, number + 1)
        left.wait(right)
    kit.finish(left, right)
    assert log == list(range(200))


def test_wait_for_itself_or_for_a_thing_is_refused(platform: Platform) -> None:
    stream = platform.devices()[0].stream()
    with pytest.raises(DeviceError):
        stream.wait(stream)
    with pytest.raises(DeviceError):
        stream.wait(object())  # type: ignore[arg-type]
    kit.finish(stream)


def test_wait_for_its_own_event_changes_nothing(platform: Platform) -> None:
    stream, log = platform.devices()[0].stream(), list[int]()
    stream.enqueue(log.append, 1)
    stream.wait(stream.record())
    stream.enqueue(log.append, 2)
    kit.finish(stream)
    assert log == [1, 2]


def test_more_urgent_streams_go_first(platform: Platform) -> None:
    """With every worker taken, many streams queue up and one urgent comes last; it must not wait for most of
    them.
    """
    device, log = platform.devices()[0], list[str]()
    crowd = 4 * (os.cpu_count() or 1) + 16
    streams: list[Stream] = []
    with kit.busy(device, crowd, priority=3):
        for name, priority in [("low", 0)] * 4 * crowd + [("high", 1)]:
            stream = device.stream(priority=priority)
            stream.enqueue(log.append, name)
            streams.append(stream)
    kit.finish(*streams)
    assert len(log) == 4 * crowd + 1
    assert log.index("high") < crowd, "a more urgent stream waited for less urgent ones"


def test_a_long_stream_yields_to_a_more_urgent_one(platform: Platform) -> None:
    """What becomes runnable and is more urgent runs before any long stream is through.

    The system may hold up the thread that took the urgent work for longer than a long stream lasts, so one
    try in five must do; a platform that does not yield fails them all.
    """
    device, spins = platform.devices()[0], np.ones(20_000)
    crowd = 4 * (os.cpu_count() or 1) + 16

    def in_time() -> bool:
        log: list[str] = []
        urgent, long = device.stream(priority=1), [device.stream() for _ in range(crowd // 2)]
        with kit.busy(device, crowd, priority=3):
            for stream in long:
                for step in range(600):
                    stream.enqueue(np.sqrt, spins)
                    if stream is long[0] and step == 300:
                        stream.enqueue(urgent.enqueue, log.append, "urgent")
                stream.enqueue(log.append, "end")
        kit.finish(*long, urgent)
        return log[0] == "urgent"

    assert any(in_time() for _ in range(5)), "an urgent stream waited until a long one was through"


def test_equally_urgent_streams_share(platform: Platform) -> None:
    """No stream runs to its end while others as urgent have not begun: each gets a turn."""
    device, log = platform.devices()[0], list[int]()
    crowd = 4 * (os.cpu_count() or 1) + 16
    spins = np.ones(50_000)

    def step(number: int) -> None:
        np.sqrt(spins)
        log.append(number)

    streams = [device.stream() for _ in range(crowd)]
    with kit.busy(device, crowd, priority=3):
        for number, stream in enumerate(streams):
            for _ in range(100):
                stream.enqueue(step, number)
    kit.finish(*streams)
    first_of_last = min(log.index(number) for number in range(crowd - 4, crowd))
    assert first_of_last < 50 * crowd


def test_a_stream_knows_what_it_is(platform: Platform) -> None:
    device = platform.devices()[0]
    stream = device.stream(priority=7, kind="copy", name="mine")
    assert isinstance(stream, Stream)
    assert (stream.name, stream.priority, stream.device, stream.error) == ("mine", 7, device, None)
    assert device.stream().name != device.stream().name
    with pytest.raises(DeviceError):
        device.stream(kind="sideways")
