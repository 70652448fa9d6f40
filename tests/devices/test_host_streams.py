"""What the host promises beyond conformance: few borrowed threads, fair order, errors kept clean."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
import trio
from plait.devices import HostDevice, device
from plait.devices.host import workers
from plait.devices.host.probe import usable_cores
from plait.errors import DeviceError
from plait.testing.conformance_kit import Gate, Mishap, fail_with, finish, settle


def test_many_streams_share_few_threads() -> None:
    host, seen = HostDevice(compute_workers=2, copy_workers=1), set[int]()
    streams = [host.stream() for _ in range(100)]
    for _ in range(20):
        for stream in streams:
            stream.enqueue(lambda: seen.add(threading.get_ident()))
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, host.pools["compute"].workers)

    streams[0].enqueue(look)
    finish(*streams)
    assert most <= 2
    assert threading.get_ident() not in seen


def test_a_pool_at_rest_holds_no_worker() -> None:
    host = HostDevice()
    stream, done = host.stream(), threading.Event()
    stream.wait(gate := Gate())  # blocked, so nothing to run
    stream.enqueue(done.set)
    assert host.pools["compute"].workers == 0
    gate.open()
    assert done.wait(30)
    finish(stream)

    async def at_rest() -> None:
        with trio.fail_after(30):
            while host.pools["compute"].workers:
                await trio.lowlevel.checkpoint()

    trio.run(at_rest)


def test_copies_go_on_while_every_compute_worker_is_busy() -> None:
    host, release = HostDevice(compute_workers=1), threading.Event()
    compute, copy = host.stream(), host.stream(kind="copy")
    compute.enqueue(release.wait, 30)
    target = np.zeros(8)
    copy.copy(target, np.ones(8))
    finish(copy)
    assert target.all()
    release.set()
    finish(compute)


def test_equal_streams_are_served_in_the_order_they_came() -> None:
    host, release, log = HostDevice(compute_workers=1), threading.Event(), list[int]()
    first = host.stream()
    first.enqueue(release.wait, 30)
    streams = [host.stream(priority=number % 2) for number in range(10)]
    for number, stream in enumerate(streams):
        stream.enqueue(log.append, number)
    release.set()
    finish(first, *streams)
    assert log == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]


def test_an_event_on_an_idle_stream_is_done_at_once() -> None:
    stream = HostDevice().stream()
    assert stream.record().done
    stream.enqueue(int)
    finish(stream)
    event = stream.record()
    settle(event)
    assert event.time_ns is not None


def test_a_stream_keeps_nothing_alive_that_it_is_through_with() -> None:
    stream, array = HostDevice().stream(), np.zeros(4)
    gone = weakref.ref(array)
    stream.enqueue(np.sqrt, array)
    del array
    finish(stream)
    stream.enqueue(int)
    finish(stream)
    gc.collect()
    assert gone() is None


def test_raising_an_error_often_does_not_grow_its_traceback() -> None:
    stream = HostDevice().stream()
    stream.enqueue(fail_with, Mishap())
    event = stream.record()
    settle(event)

    def depth() -> int:
        with pytest.raises(Mishap) as caught:
            _ = event.done
        return len(caught.traceback)

    assert depth() == depth()
    with pytest.raises(Mishap) as caught:
        _ = event.done
    assert caught.traceback[-1].name == "fail_with", "the traceback ends where the work raised"


def test_even_a_base_exception_is_the_streams() -> None:
    stream = HostDevice().stream()
    stream.enqueue(fail_with, KeyboardInterrupt())
    event = stream.record()
    settle(event)
    assert isinstance(event.error, KeyboardInterrupt)


def test_work_may_enqueue_record_and_wait() -> None:
    host, log = HostDevice(compute_workers=1), list[int]()
    first, second, gate = host.stream(), host.stream(), Gate()

    def work() -> None:
        second.wait(first)  # what first holds now: this operation, and what stands behind it
        second.enqueue(log.append, 2)
        first.enqueue(log.append, 3)

    first.wait(gate)
    first.enqueue(work)
    first.enqueue(log.append, 1)
    gate.open()
    finish(first)
    finish(first, second)
    assert sorted(log) == [1, 2, 3]
    assert log.index(1) < log.index(2)


def test_without_a_thread_streams_fail_and_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    host, log = HostDevice(), list[int]()
    gate, stream = Gate(), host.stream()
    stream.wait(gate)
    stream.enqueue(log.append, 1)
    event = stream.record()

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(workers.trio.lowlevel, "start_thread_soon", refuse)
        gate.open()
        settle(event)
    assert isinstance(event.error, DeviceError)
    assert "can't start new thread" in str(event.error)
    assert log == []
    fresh = host.stream()
    fresh.enqueue(log.append, 2)
    finish(fresh)
    assert log == [2]


def test_a_callback_that_raises_is_logged_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    stream, gate, log = HostDevice().stream(), Gate(), list[int]()
    stream.wait(gate)
    event = stream.record()
    event.add_callback(lambda: fail_with(Mishap("a bad callback")))
    event.add_callback(lambda: log.append(1))
    stream.enqueue(log.append, 2)
    gate.open()
    finish(stream)
    assert log == [1, 2]
    assert "a bad callback" in caplog.text


def test_targets_that_cannot_be_written_are_refused() -> None:
    stream, array = HostDevice().stream(), np.zeros(4)
    array.flags.writeable = False
    for target in (array, [0, 0, 0, 0]):
        with pytest.raises(DeviceError):
            stream.copy(target, np.ones(4))
        with pytest.raises(DeviceError):
            stream.fill(target, 1)


@pytest.mark.parametrize(("dtype", "value"), [("i4", 2.5), ("u1", 300), ("u1", -1), ("?", 2), ("f4", [1, 2])])
def test_fill_refuses_a_value_that_does_not_fit(dtype: str, value: object) -> None:
    with pytest.raises(DeviceError):
        HostDevice().stream().fill(np.zeros(3, dtype), value)


def test_fill_takes_a_value_of_another_kind_that_stays_the_same() -> None:
    stream, whole, flags = HostDevice().stream(), np.zeros(3, "i4"), np.ones(3, bool)
    stream.fill(whole, 2.0)
    stream.fill(flags, 0)
    finish(stream)
    assert whole.tolist() == [2, 2, 2]
    assert not flags.any()


def test_overlapping_copies_are_as_if_through_a_buffer() -> None:
    stream, array = HostDevice().stream(), np.arange(6)
    stream.copy(array[1:], array[:-1])
    finish(stream)
    assert array.tolist() == [0, 0, 1, 2, 3, 4]


def test_pools_are_sized_by_the_machine() -> None:
    host = device("host")
    assert {kind: pool.size for kind, pool in host.pools.items()} == {"compute": usable_cores(), "copy": 2}
    with pytest.raises(DeviceError):
        HostDevice(compute_workers=0)
    with pytest.raises(DeviceError):
        host.stream(priority=1.5)


async def test_priorities_hold_while_events_release_streams() -> None:
    host, log = HostDevice(compute_workers=1), list[int]()
    streams = [host.stream(priority=number) for number in range(20)]
    release, gate = threading.Event(), Gate()
    hold = host.stream(priority=99)
    for number, stream in enumerate(streams):
        stream.wait(gate)
        stream.enqueue(log.append, number)
    hold.enqueue(release.wait, 30)
    gate.open()
    release.set()
    for stream in streams:
        await stream.synchronize()
    assert log == list(reversed(range(20)))


def test_random_waits_between_streams_keep_every_order() -> None:
    """A million ways to interleave; each operation sees that all it must come after have been."""
    rng = np.random.default_rng(7)
    for trial in range(20):
        host = HostDevice(compute_workers=1 + trial % 4)
        streams = [host.stream(priority=int(rng.integers(3)), kind=("compute", "copy")[i % 2]) for i in range(6)]
        counts, wrong = [0] * 6, list[object]()
        enqueued = [0] * 6
        known = [[0] * 6 for _ in range(6)]

        def work(number: int, least: list[int], counts=counts, wrong=wrong) -> None:
            if any(have < need for have, need in zip(counts, least, strict=True)):
                wrong.append((number, list(counts), least))
            counts[number] += 1

        for _ in range(1000):
            here, other = (int(value) for value in rng.choice(6, 2, replace=False))
            if rng.random() < 0.3:
                streams[here].wait(streams[other] if rng.random() < 0.5 else streams[other].record())
                known[here] = [max(pair) for pair in zip(known[here], known[other], strict=True)]
            else:
                streams[here].enqueue(work, here, list(known[here]))
                enqueued[here] += 1
                known[here][here] = enqueued[here]
        finish(*streams)
        assert not wrong
        assert counts == enqueued
