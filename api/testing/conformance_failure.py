"""Conformance of streams that fail or are closed: what follows, what spreads, what does not."""

from __future__ import annotations

import numpy as np
import pytest
from plait.devices.protocol import EventStatus, Platform
from plait.errors import DeviceError
from plait.testing import conformance_kit as kit


def test_a_failed_stream_stays_failed(platform: Platform) -> None:
    stream, log, error = platform.devices()[0].stream(), list[str](), kit.Mishap("B")
    stream.enqueue(log.append, "A")
    stream.enqueue(kit.fail_with, error)
    stream.enqueue(log.append, "C")
    with pytest.raises(kit.Mishap) as caught:
        kit.finish(stream)
    assert caught.value is error
    stream.enqueue(log.append, "D")
    stream.enqueue(kit.fail_with, kit.Mishap("E"))
    with pytest.raises(kit.Mishap) as caught:
        kit.finish(stream)
    assert caught.value is error, "the first failure is the one that counts"
    assert stream.error is error
    assert log == ["A"], "what follows a failure is skipped"


def test_failure_stays_in_its_stream(platform: Platform) -> None:
    device, log = platform.devices()[0], list[str]()
    bad, good = device.stream(), device.stream()
    bad.enqueue(kit.fail_with, kit.Mishap())
    good.enqueue(log.append, "fine")
    kit.settle(bad.record())
    kit.finish(good)
    assert good.error is None
    assert log == ["fine"]
    fresh = device.stream()
    fresh.enqueue(log.append, "fresh")
    kit.finish(fresh)
    assert log == ["fine", "fresh"]


def test_failure_spreads_to_the_stream_that_waits(platform: Platform) -> None:
    device, error = platform.devices()[0], kit.Mishap()
    for early in (True, False):  # the wait is taken before and after the failure
        gate, log = kit.Gate(), list[str]()
        bad, waiting = device.stream(), device.stream()
        bad.wait(gate)
        bad.enqueue(kit.fail_with, error)
        event = bad.record()
        if early:
            waiting.wait(event)
        gate.open()
        kit.settle(event)
        if not early:
            waiting.wait(event)
        waiting.enqueue(log.append, "without its input")
        with pytest.raises(kit.Mishap) as caught:
            kit.finish(waiting)
        assert caught.value is error
        assert log == []


def test_a_failed_stream_waits_for_nothing(platform: Platform) -> None:
    stream, error = platform.devices()[0].stream(), kit.Mishap()
    stream.enqueue(kit.fail_with, error)
    stream.wait(kit.Gate())
    event = stream.record()
    kit.settle(event)
    assert event.status is EventStatus.FAILED


def test_a_closed_stream_refuses_and_finishes(platform: Platform) -> None:
    device, gate, log = platform.devices()[0], kit.Gate(), list[str]()
    stream = device.stream()
    array = device.allocator.allocate(64).array(64, np.uint8)
    stream.wait(gate)
    stream.enqueue(log.append, "before")
    stream.close()
    stream.close()
    for refused in (
        lambda: stream.enqueue(log.append, "after"),
        lambda: stream.copy(array, array),
        lambda: stream.fill(array, 0),
        stream.record,
        lambda: stream.wait(device.event()),
    ):
        with pytest.raises(DeviceError):
            refused()
    gate.open()
    kit.finish(stream)
    assert log == ["before"]
