"""Completion of driver events on the rig, each way: pending, done, idle, crowded, and at the interpreter's end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from completion_kit import Stream, control, restored, threads_at_work, until
from plait.devices.gpu import polling, waiter
from plait.devices.gpu.completion import WAYS, Tracker, tracker
from plait.devices.gpu.followed import Followed
from plait.devices.mark import Mark
from plait.devices.protocol import EventStatus
from plait.devices.waiting import wait_mark, wait_marks
from plait.errors import DeviceError
from rig import command_environment

EXIT_SCRIPT = Path(__file__).with_name("exit_pending.py")


@pytest.fixture(autouse=True)
def rig() -> Iterator[None]:
    with restored():
        yield


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Iterator[Tracker]:
    found = tracker("hip:0", 0, request.param)
    yield found
    found.close()


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


@pytest.mark.parametrize("state", ["held", "busy"])
@pytest.mark.parametrize("name", list(WAYS))
def test_the_interpreter_ends_with_work_pending(name: str, state: str) -> None:
    def end(_: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXIT_SCRIPT), name, state]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=command_environment()
        )

    with ThreadPoolExecutor(2) as pool:
        for ended in pool.map(end, range(10)):
            assert (ended.returncode, ended.stdout, ended.stderr) == (0, "pending\n", "")


def test_unknown_way() -> None:
    with pytest.raises(DeviceError, match="host-function, waiter, polling"):
        tracker("hip:0", 0, "spinning")
