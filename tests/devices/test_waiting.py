"""Waiting from trio: batches, cancelling without a trace, loops that are gone, a hundred thousand at once."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import trio
import trio.testing
from plait.devices import HostDevice, Mark, wait, waiting
from plait.errors import DeviceError
from plait.testing.conformance_kit import Gate, Mishap, finish


class CountedToken:
    """A trio token that counts the messages to the loop."""

    def __init__(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self.messages = 0

    def run_sync_soon(self, function: Callable[[], object]) -> None:
        self.messages += 1
        self.token.run_sync_soon(function)


def count_messages() -> CountedToken:
    token = CountedToken()
    waiting._completions.set(waiting._Completions(token))  # type: ignore[arg-type]
    return token


async def test_one_message_wakes_a_whole_batch() -> None:
    token, marks, woken = count_messages(), [Mark() for _ in range(1000)], list[int]()

    async def follow(number: int) -> None:
        await waiting.wait_mark(marks[number])
        woken.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(follow, number)
        await trio.testing.wait_all_tasks_blocked()
        for mark in marks:  # no checkpoint in between, so the loop has no chance to look
            mark.settle()
        assert token.messages == 1
    assert sorted(woken) == list(range(1000))
    assert token.messages == 1


async def test_a_hundred_thousand_events_at_once() -> None:
    token, host = count_messages(), HostDevice()
    stream, release = host.stream(), threading.Event()
    stream.enqueue(release.wait, 60)
    tracemalloc.start()
    events = [stream.record(timing=False) for _ in range(100_000)]
    threads, tasks = threading.active_count(), trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, events)
        await trio.testing.wait_all_tasks_blocked()
        nbytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert trio.lowlevel.current_statistics().tasks_living <= tasks + 1
        assert threading.active_count() <= threads
        release.set()
    assert all(event.done for event in events)
    assert token.messages == 1
    assert nbytes / len(events) < 1000, "bytes per event that is awaited"


async def test_a_hundred_thousand_events_over_many_streams() -> None:
    host = HostDevice()
    streams = [host.stream(priority=number % 3) for number in range(50)]
    events = []
    for number in range(100_000):
        stream = streams[number % 50]
        stream.enqueue(int)
        events.append(stream.record(timing=False))
    with trio.fail_after(60):
        await wait(events)
    assert all(event.done for event in events)


async def test_cancelled_waits_leave_nothing_behind() -> None:
    stream, gate = HostDevice().stream(), Gate()
    stream.wait(gate)
    event, other = stream.record(), stream.record()
    for _ in range(100):
        with trio.CancelScope() as scope:
            scope.cancel()
            await event
        with trio.CancelScope() as scope:
            scope.cancel()
            await wait([event, other, stream])
    for pending in (event, other):
        assert not pending.snapshot()._callbacks
    gate.open()
    await event


async def test_an_event_that_settles_while_its_wait_is_cancelled() -> None:
    """The message to the loop is under way when the cancel wins: it must wake nobody."""
    mark = Mark()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.wait_mark, mark)
        await trio.testing.wait_all_tasks_blocked()
        mark.settle()
        nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()


async def test_a_timeout_of_a_wait_in_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    mark = Mark()
    with trio.move_on_after(3600) as scope:
        await waiting.wait_mark(mark)
    assert scope.cancelled_caught
    assert trio.current_time() == 3600
    mark.settle()


def test_events_that_settle_after_the_loop_has_gone() -> None:
    stream, gate = HostDevice().stream(), Gate()
    stream.wait(gate)
    event = stream.record()
    completions = []

    async def main() -> None:
        completions.append(waiting._this_run())
        with trio.move_on_after(0):
            await event

    trio.run(main)
    waiter = waiting._Waiter(completions[0], object(), 1)  # type: ignore[arg-type]
    event.snapshot().subscribe(waiter.count)
    gate.open()
    finish(stream)
    assert event.done


def test_two_loops_in_two_threads_wait_for_one_event() -> None:
    stream, gate, log = HostDevice().stream(), Gate(), list[str]()
    stream.wait(gate)
    event = stream.record()
    ready = threading.Barrier(3)

    async def follow() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, event)
            await trio.testing.wait_all_tasks_blocked()
            ready.wait(30)
        log.append("woken")

    threads = [threading.Thread(target=trio.run, args=(follow,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(30)
    gate.open()
    for thread in threads:
        thread.join()
    assert log == ["woken", "woken"]


def test_outside_trio_the_refusal_says_what_to_do() -> None:
    event = HostDevice().stream().record()

    async def main() -> None:
        await event

    with pytest.raises(DeviceError, match="run_async"):
        asyncio.run(main())
    with pytest.raises(DeviceError, match="trio"):
        event.__await__().send(None)


@pytest.mark.parametrize("thing", [None, 7, "host", b"host", np.zeros(3), object(), [object()], ["host"], int])
async def test_what_cannot_be_waited_for_is_named(thing: object) -> None:
    with pytest.raises(DeviceError, match="wait takes an event or a stream of plait, CuPy or PyTorch"):
        await wait(thing)  # type: ignore[arg-type]


async def test_wait_takes_any_iterable_and_a_closed_stream() -> None:
    stream = HostDevice().stream()
    stream.enqueue(int)
    event = stream.record()
    stream.close()
    await wait(stream)
    await wait(entry for entry in (stream, event, Gate_open()))
    await wait({event: "a key"})


def Gate_open() -> Gate:
    gate = Gate()
    gate.open()
    return gate


async def test_the_first_error_in_the_order_given_is_raised() -> None:
    first, second = Mark(), Mark()
    second.settle(Mishap("second"))
    first.settle(Mishap("first"))
    with pytest.raises(Mishap, match="first"):
        await waiting.wait_marks([first, second])
