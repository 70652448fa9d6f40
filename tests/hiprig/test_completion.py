"""Completion of driver events on the rig, each way: pending, done, failed, closed, idle, crowded, and at exit."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trio
from plait.devices.gpu import polling, waiter
from plait.devices.gpu.completion import WAYS, Tracker, tracker
from plait.devices.gpu.followed import Followed
from plait.devices.mark import Mark
from plait.devices.protocol import EventStatus
from plait.devices.waiting import wait_mark, wait_marks
from plait.errors import DeviceError, DeviceLost

cupy = pytest.importorskip("cupy", reason="needs CuPy on the rig", exc_type=ImportError)
try:
    _control = ctypes.CDLL("libamdhip64.so.7").hipcpu_control
except (OSError, AttributeError):
    pytest.skip("CuPy does not run on the rig here", allow_module_level=True)
_control.argtypes = [ctypes.c_char_p]

LAUNCH_FAILURE = 719
EXIT_SCRIPT = Path(__file__).with_name("exit_pending.py")


def control(command: str) -> None:
    assert _control(command.encode()) == 0, command


@pytest.fixture(autouse=True)
def rig() -> Iterator[None]:
    yield
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        for engine in ("compute", "h2d", "d2h"):
            control(f"release {engine} {device}")
    control("clear")


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Iterator[Tracker]:
    found = tracker("hip:0", 0, request.param)
    yield found
    found.close()


class Stream:
    """A driver stream whose work can be held by its engine."""

    def __init__(self) -> None:
        self.driver = cupy.cuda.Stream(non_blocking=True)
        self.ptr: int = self.driver.ptr
        self._pinned = cupy.cuda.alloc_pinned_memory(64)
        self._device = cupy.cuda.alloc(64)

    def kernel(self) -> None:
        with self.driver:
            nop()((1,), (1,), (np.int32(1),))

    def upload(self) -> None:
        self._device.copy_from_host_async(ctypes.c_void_p(self._pinned.ptr), 64, self.driver)

    def record(self) -> Any:
        event = cupy.cuda.Event(block=True, disable_timing=True)
        event.record(self.driver)
        return event

    def follow(self, way: Tracker) -> Mark:
        mark = Mark()
        way.follow(self.ptr, self.record(), mark)
        return mark


def nop() -> Any:
    return cupy.RawKernel('extern "C" __global__ void nop(int n) {}', "nop")


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    stream = Stream()
    stream.kernel()
    stream.driver.synchronize()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.sleep(0.001)


def fault(stream: Stream) -> None:
    """The device fails at the stream's next kernel."""
    control(f"fail async:kernel {LAUNCH_FAILURE} 1")
    stream.kernel()


async def test_done(way: Tracker) -> None:
    stream = Stream()
    control("hold compute 0")
    stream.kernel()
    mark = stream.follow(way)
    await trio.sleep(0.01)
    assert mark.status is EventStatus.PENDING
    control("release compute 0")
    with trio.fail_after(10):
        await wait_mark(mark)
    assert mark.status is EventStatus.DONE


async def test_reached_already(way: Tracker) -> None:
    stream = Stream()
    stream.kernel()
    event, mark = stream.record(), Mark()
    event.synchronize()
    way.follow(stream.ptr, event, mark)
    assert mark.status is EventStatus.DONE, "no thread is needed to see it"


async def test_what_is_followed_later_is_not_held_back_by_an_older_event(way: Tracker) -> None:
    slow, fast = Stream(), Stream()
    control("hold compute 0")
    slow.kernel()
    older = slow.follow(way)
    fast.upload()
    with trio.fail_after(10):
        await wait_mark(fast.follow(way))
    assert not older.settled
    control("release compute 0")
    with trio.fail_after(10):
        await wait_mark(older)


async def test_a_thousand_events_of_one_stream_settle_in_order(way: Tracker) -> None:
    stream, order = Stream(), list[int]()
    control("hold compute 0")
    stream.kernel()
    marks = [stream.follow(way) for _ in range(1000)]
    for number, mark in enumerate(marks):
        mark.subscribe(lambda number=number: order.append(number))  # type: ignore[misc]
    control("release compute 0")
    with trio.fail_after(10):
        await wait_marks(marks)
    assert order == list(range(1000))


def test_one_look_settles_all_that_is_reached() -> None:
    followed, streams, marks = Followed("hip:0"), [Stream() for _ in range(4)], list[Mark]()
    control("hold compute 0")
    for stream in streams:
        stream.kernel()
        for _ in range(50):
            marks.append(Mark())
            assert followed.add(stream.ptr, stream.record(), marks[-1])
    assert not followed.drain()
    control("release compute 0")
    for stream in streams:
        stream.driver.synchronize()
    assert not any(mark.settled for mark in marks)
    assert followed.drain()
    assert all(mark.settled for mark in marks)
    assert not followed.streams
    assert not followed.drain()


async def test_many_streams_need_few_threads(way: Tracker) -> None:
    streams = [Stream() for _ in range(32)]
    control("hold compute 0")
    before = threading.active_count()
    marks = []
    for stream in streams:
        stream.kernel()
        marks += [stream.follow(way) for _ in range(3)]
    await trio.sleep(0.05)
    assert threading.active_count() <= before + waiter.MAX_THREADS + 1
    assert not any(mark.settled for mark in marks)
    extra = Stream()  # beyond the threads there are, and the first to be reached
    extra.upload()
    with trio.fail_after(10):
        await wait_mark(extra.follow(way))
    control("release compute 0")
    with trio.fail_after(10):
        await wait_marks(marks)


def threads_at_work() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hip:0 ")]


async def test_idle_means_no_thread_and_no_cpu(way: Tracker) -> None:
    stream = Stream()
    control("hold compute 0")
    stream.kernel()
    mark = stream.follow(way)
    control("release compute 0")
    with trio.fail_after(10):
        await wait_mark(mark)
    await until(lambda: not threads_at_work())
    used = time.process_time()
    await trio.sleep(0.5)
    assert time.process_time() - used < 0.025


async def test_waiting_long_costs_little(way: Tracker) -> None:
    streams = [Stream() for _ in range(8)]
    control("hold compute 0")
    for stream in streams:
        stream.kernel()
        stream.follow(way)
    await trio.sleep(0.1)
    used = time.process_time()
    await trio.sleep(0.5)
    assert time.process_time() - used < (0.1 if isinstance(way, polling.Polling) else 0.025)


async def test_a_failed_device_fails_all_that_is_followed(way: Tracker) -> None:
    took = []
    for _ in range(3):
        streams = [Stream() for _ in range(20)]
        control("hold h2d 0")
        for stream in streams:
            stream.upload()
        marks = [stream.follow(way) for stream in streams for _ in range(3)]
        bad = Stream()  # nothing of it is followed
        fault(bad)
        await until(lambda: cupy.cuda.runtime.streamQuery(bad.ptr) == LAUNCH_FAILURE)  # noqa: B023
        began = time.perf_counter()
        for mark in marks:
            with trio.fail_after(10), pytest.raises(DeviceLost, match="hip:0"):
                await wait_mark(mark)
        took.append(time.perf_counter() - began)
        control("release h2d 0")
        control("clear")
    assert min(took) < 0.1


async def test_following_on_a_failed_device(way: Tracker) -> None:
    stream = Stream()
    event = stream.record()
    fault(stream)
    await until(lambda: cupy.cuda.runtime.streamQuery(stream.ptr) == LAUNCH_FAILURE)
    mark = Mark()
    way.follow(stream.ptr, event, mark)
    assert isinstance(mark.error, DeviceLost)


async def test_closing_settles_what_is_pending(way: Tracker) -> None:
    streams, told = [Stream() for _ in range(20)], list[int]()
    control("hold compute 0")
    for stream in streams:
        stream.kernel()
    marks = [stream.follow(way) for stream in streams]
    for mark in marks:
        mark.subscribe(lambda: told.append(1))
    way.close()
    assert len(told) == 20
    for mark in marks:
        with pytest.raises(DeviceError, match="closed"):
            await wait_mark(mark)
    late = streams[0].follow(way)
    assert isinstance(late.error, DeviceError)
    way.close()
    control("release compute 0")
    await until(lambda: not threads_at_work())
    assert len(told) == 20


async def test_host_functions_let_go_of_no_event() -> None:
    way, stream = tracker("hip:0", 0, "host-function"), Stream()
    called, dropped = list[int](), list[int]()

    class Watched(SimpleNamespace):
        def __del__(self) -> None:
            dropped.append(threading.get_native_id())

    control("hold compute 0")
    for _ in range(20):
        stream.kernel()
        event, mark = stream.record(), Mark()
        way.follow(stream.ptr, Watched(ptr=event.ptr, kept=event), mark)
        mark.subscribe(lambda: called.append(threading.get_native_id()))
    assert not dropped
    control("release compute 0")
    await until(lambda: len(dropped) == 20)
    assert called
    assert not set(dropped) & (set(called) - {thread.native_id for thread in threading.enumerate()})
    way.close()


async def test_from_many_threads(way: Tracker) -> None:
    marks: list[list[Mark]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        stream = Stream()
        for _ in range(200):
            stream.kernel()
            marks[number].append(stream.follow(way))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(trio.to_thread.run_sync, work, number)
    with trio.fail_after(20):
        await wait_marks([mark for each in marks for mark in each])


async def test_no_thread_to_be_had(way: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(polling, "start_thread", refuse)
    monkeypatch.setattr(waiter, "start_thread", refuse)
    stream = Stream()
    control("hold compute 0")
    stream.kernel()
    mark = stream.follow(way)
    assert isinstance(mark.error, DeviceError)
    assert "no thread" in str(mark.error)


async def test_no_waiting_thread_leaves_it_to_the_patrol(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(waiter, "start_thread", refuse)
    way, stream = tracker("hip:0", 0, "waiter"), Stream()
    control("hold compute 0")
    stream.kernel()
    mark = stream.follow(way)
    control("release compute 0")
    with trio.fail_after(10):
        await wait_mark(mark)
    way.close()


@pytest.mark.skipif(cupy.cuda.runtime.getDeviceCount() < 2, reason="needs a rig of two devices")
async def test_the_other_device_does_not_notice() -> None:
    for name in WAYS:
        first, second = tracker("hip:0", 0, name), tracker("hip:1", 1, name)
        here = Stream()
        with cupy.cuda.Device(1):
            there = Stream()
            control("hold compute 1")
            there.kernel()
            spared = there.follow(second)
        control("hold compute 0")
        fault(here)
        lost = here.follow(first)
        control("release compute 0")
        with trio.fail_after(10), pytest.raises(DeviceLost, match="hip:0"):
            await wait_mark(lost)
        assert not spared.settled
        control("release compute 1")
        with trio.fail_after(10):
            await wait_mark(spared)
        assert cupy.cuda.runtime.getDevice() == 0
        first.close()
        second.close()
        control("clear")


@pytest.mark.parametrize("state", ["held", "busy"])
@pytest.mark.parametrize("name", list(WAYS))
def test_the_interpreter_ends_with_work_pending(name: str, state: str) -> None:
    def end(_: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXIT_SCRIPT), name, state]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    with ThreadPoolExecutor(2) as pool:
        for ended in pool.map(end, range(10)):
            assert (ended.returncode, ended.stdout, ended.stderr) == (0, "pending\n", "")


def test_unknown_way() -> None:
    with pytest.raises(DeviceError, match="host-function, waiter, polling"):
        tracker("hip:0", 0, "spinning")
