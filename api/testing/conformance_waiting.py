"""Conformance of waiting from trio: await, synchronize, wait for many; cancelling them."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from plait.devices.protocol import Event, EventStatus, Platform
from plait.devices.waiting import wait
from plait.testing import conformance_kit as kit


def test_synchronize_waits_and_is_a_checkpoint(platform: Platform) -> None:
    stream, gate, log = platform.devices()[0].stream(), kit.Gate(), list[str]()

    async def main() -> None:
        with trio.testing.assert_checkpoints():
            await stream.synchronize()
        stream.wait(gate)
        stream.enqueue(log.append, "held")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            assert log == []
            gate.open()
        assert log == ["held", "synchronized"]

    async def follow() -> None:
        await stream.synchronize()
        log.append("synchronized")

    kit.within_time(main)


def test_cancelling_synchronize_leaves_the_stream_alone(platform: Platform) -> None:
    stream, gate, log = platform.devices()[0].stream(), kit.Gate(), list[str]()

    async def main() -> None:
        stream.wait(gate)
        stream.enqueue(log.append, "ran")
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.synchronize()
        assert scope.cancelled_caught
        assert stream.error is None
        gate.open()
        await stream.synchronize()
        assert log == ["ran"]

    kit.within_time(main)


def test_recording_again_disturbs_no_await(platform: Platform) -> None:
    device, log = platform.devices()[0], list[str]()
    sooner, later = kit.Gate(), kit.Gate()
    first, second = device.stream(), device.stream()

    async def follow(event: Event, name: str) -> None:
        await event
        log.append(name)

    async def main() -> None:
        first.wait(sooner)
        second.wait(later)
        event = first.record()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, event, "early")
            await trio.testing.wait_all_tasks_blocked()
            second.record(event)
            nursery.start_soon(follow, event, "late")
            await trio.testing.wait_all_tasks_blocked()
            sooner.open()
            await first.synchronize()
            await trio.testing.wait_all_tasks_blocked()
            assert log == ["early"]
            later.open()
        assert log == ["early", "late"]

    kit.within_time(main)


def test_await_is_a_checkpoint_and_raises_what_failed(platform: Platform) -> None:
    stream, error = platform.devices()[0].stream(), kit.Mishap()

    async def main() -> None:
        event = stream.record()
        await event
        with trio.testing.assert_checkpoints():
            await event
        stream.enqueue(kit.fail_with, error)
        event = stream.record()
        for _ in range(2):
            with pytest.raises(kit.Mishap) as caught:
                await event
            assert caught.value is error

    kit.within_time(main)


def test_cancelling_an_await_leaves_the_stream_alone(platform: Platform) -> None:
    stream, gate, log = platform.devices()[0].stream(), kit.Gate(), list[str]()

    async def main() -> None:
        stream.wait(gate)
        stream.enqueue(log.append, "ran")
        event = stream.record()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, event)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert event.status is EventStatus.PENDING
        gate.open()
        await event
        assert log == ["ran"]

    kit.within_time(main)


def test_many_tasks_await_one_event(platform: Platform) -> None:
    stream, gate, log = platform.devices()[0].stream(), kit.Gate(), list[int]()

    async def follow(event: Event, number: int) -> None:
        await event
        log.append(number)

    async def main() -> None:
        stream.wait(gate)
        event = stream.record()
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(follow, event, number)
            await trio.testing.wait_all_tasks_blocked()
            assert log == []
            gate.open()
        assert sorted(log) == list(range(200))

    kit.within_time(main)


def test_wait_takes_many_events_and_streams(platform: Platform) -> None:
    device, gate, log = platform.devices()[0], kit.Gate(), list[int]()
    streams = [device.stream() for _ in range(10)]

    async def main() -> None:
        events: list[Event] = []
        for number in range(1000):
            stream = streams[number % 10]
            if number < 10:
                stream.wait(gate)
            stream.enqueue(log.append, number)
            events.append(stream.record(timing=False))
        gate.open()
        await wait(events)
        assert sorted(log) == list(range(1000))
        await wait([*streams, events[0], events[0], device.event()])
        await wait([])

    kit.within_time(main)


def test_wait_for_many_raises_once_all_are_settled(platform: Platform) -> None:
    device, gate, error = platform.devices()[0], kit.Gate(), kit.Mishap()
    bad, held = device.stream(), device.stream()

    async def main() -> None:
        bad.enqueue(kit.fail_with, error)
        held.wait(gate)
        failed, pending = bad.record(), held.record()
        async with trio.open_nursery() as nursery:

            async def follow() -> None:
                with pytest.raises(kit.Mishap) as caught:
                    await wait([pending, failed])
                assert caught.value is error
                assert pending.done

            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            gate.open()

    kit.within_time(main)
