"""Conformance of events: states, recording again, callbacks, elapsed time, waiting from trio."""

from __future__ import annotations

import time

import pytest
from plait.devices.protocol import Event, EventStatus, Platform
from plait.devices.waiting import wait
from plait.errors import DeviceError
from plait.testing import conformance_kit as kit


def spin(seconds: float) -> None:
    """Work of a known least duration."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_never_recorded_counts_as_done(platform: Platform) -> None:
    device, log = platform.devices()[0], list[str]()
    event, stream = device.event(), device.stream()
    assert isinstance(event, Event)
    assert event.status is EventStatus.DONE
    assert event.done is True
    assert event.error is None
    event.add_callback(lambda: log.append("told"))
    assert log == ["told"]
    stream.wait(event)
    stream.enqueue(log.append, "ran")
    kit.finish(stream)
    assert log == ["told", "ran"]
    kit.within_time(wait, event)


def test_an_event_is_pending_then_done(platform: Platform) -> None:
    device, gate, log = platform.devices()[0], kit.Gate(), list[str]()
    stream = device.stream()
    stream.wait(gate)
    stream.enqueue(log.append, "work")
    event = stream.record()
    event.add_callback(lambda: log.append("told"))
    kit.give_others_a_chance(device)
    assert [event.status, event.done] == [EventStatus.PENDING, False]
    assert log == []
    gate.open()
    kit.settle(event)
    assert [event.status, event.done] == [EventStatus.DONE, True]
    kit.finish(stream)
    assert log == ["work", "told"]


def test_a_late_callback_runs_at_once(platform: Platform) -> None:
    stream, log = platform.devices()[0].stream(), list[str]()
    stream.enqueue(int)
    event = stream.record()
    kit.settle(event)
    event.add_callback(lambda: log.append("late"))
    assert log == ["late"]


def test_every_callback_is_called_once(platform: Platform) -> None:
    stream, gate, log = platform.devices()[0].stream(), kit.Gate(), list[int]()
    stream.wait(gate)
    event = stream.record()
    for number in range(50):
        event.add_callback(lambda number=number: log.append(number))  # type: ignore[misc]
    event.add_callback(same := lambda: log.append(50))
    event.add_callback(same)
    gate.open()
    stream.record(event)
    kit.finish(stream)
    assert sorted(log) == [*range(51), 50]


def test_recording_again_moves_the_event(platform: Platform) -> None:
    device, gate = platform.devices()[0], kit.Gate()
    held, free = device.stream(), device.stream()
    held.wait(gate)
    event = held.record()
    assert event.status is EventStatus.PENDING
    assert free.record(event) is event
    kit.settle(event)
    assert event.done
    assert held.record(event) is event
    kit.give_others_a_chance(device)
    assert event.status is EventStatus.PENDING
    gate.open()
    kit.finish(held)
    assert event.done


def test_recording_again_disturbs_no_wait_of_a_stream(platform: Platform) -> None:
    device, log = platform.devices()[0], list[str]()
    sooner, later = kit.Gate(), kit.Gate()
    first, second, free = device.stream(), device.stream(), device.stream()
    early, late = device.stream(), device.stream()
    first.wait(sooner)
    second.wait(later)
    event = first.record()
    early.wait(event)
    early.enqueue(log.append, "early")
    free.record(event)
    late.wait(second.record(event))
    late.enqueue(log.append, "late")
    kit.give_others_a_chance(device)
    assert log == [], "recording the event elsewhere released a wait that was taken before"
    sooner.open()
    kit.finish(early)
    assert log == ["early"]
    later.open()
    kit.finish(late)
    assert log == ["early", "late"]


def test_events_of_a_failed_stream_fail(platform: Platform) -> None:
    device, gate, error, heard = platform.devices()[0], kit.Gate(), kit.Mishap(), list[BaseException | None]()
    stream = device.stream()
    before = stream.record()
    stream.wait(gate)
    stream.enqueue(kit.fail_with, error)
    after = stream.record()
    after.add_callback(lambda: heard.append(after.error))
    gate.open()
    kit.settle(before, after)
    later = stream.record()
    kit.settle(later)
    assert before.done
    assert heard == [error], "a callback hears of the failure once"
    for event in (after, later):
        assert event.status is EventStatus.FAILED
        assert event.error is error
        with pytest.raises(kit.Mishap):
            _ = event.done
        with pytest.raises(kit.Mishap):
            kit.within_time(wait, event)


def test_a_gate_that_fails_fails_the_stream(platform: Platform) -> None:
    """An event of another platform fails: the error reaches what waits behind it."""
    stream, gate, error = platform.devices()[0].stream(), kit.Gate(), kit.Mishap()
    stream.wait(gate)
    event = stream.record()
    gate.fail(error)
    kit.settle(event)
    assert event.error is error
    assert stream.error is error


def test_elapsed_is_the_time_between(platform: Platform) -> None:
    stream, begin = platform.devices()[0].stream(), time.perf_counter()
    stream.enqueue(int)
    events = [stream.record()]
    for seconds in (0.005, 0.02):
        stream.enqueue(spin, seconds)
        events.append(stream.record())
    kit.finish(stream)
    most = time.perf_counter() - begin
    first, second = events[1].elapsed(events[0]), events[2].elapsed(events[1])
    assert 0.005 <= first <= most
    assert 0.02 <= second <= most
    assert events[2].elapsed(events[0]) == pytest.approx(first + second, abs=1e-6)
    assert events[0].elapsed(events[0]) == 0
    assert events[0].elapsed(events[1]) == -first


def test_elapsed_between_streams(platform: Platform) -> None:
    device = platform.devices()[0]
    first, second = device.stream(), device.stream(kind="copy")
    start = first.record()
    first.enqueue(spin, 0.01)
    second.wait(first)
    end = second.record()
    kit.finish(first, second)
    assert end.elapsed(start) >= 0.01


def test_elapsed_without_both_times_is_refused(platform: Platform) -> None:
    device, gate = platform.devices()[0], kit.Gate()
    stream, held, bad = device.stream(), device.stream(), device.stream()
    timed, untimed = stream.record(), stream.record(timing=False)
    held.wait(gate)
    pending = held.record()
    bad.enqueue(kit.fail_with, kit.Mishap())
    failed = bad.record()
    kit.settle(timed, untimed, failed)
    for other in (untimed, pending, failed, device.event()):
        with pytest.raises(DeviceError):
            timed.elapsed(other)
        with pytest.raises(DeviceError):
            other.elapsed(timed)
    gate.open()
    kit.finish(held)
    assert pending.elapsed(timed) >= 0
