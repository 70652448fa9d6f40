"""Completion on the rig when things fail: the device, the driver's calls, threads; and when the tracker is closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import trio
from completion_kit import LAUNCH_FAILURE, Stream, control, cupy, fault, has_failed, restored, threads_at_work, until
from plait.devices.gpu import polling, waiter
from plait.devices.gpu.completion import WAYS, Tracker, tracker
from plait.devices.gpu.followed import current_device
from plait.devices.mark import Mark
from plait.devices.waiting import wait_mark
from plait.errors import DeviceError, DeviceLost

two_devices = pytest.mark.skipif(cupy.cuda.runtime.getDeviceCount() < 2, reason="needs a rig of two devices")


@pytest.fixture(autouse=True)
def rig() -> Iterator[None]:
    with restored():
        yield


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Iterator[Tracker]:
    found = tracker("hip:0", 0, request.param)
    yield found
    found.close()


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
        await until(lambda: has_failed(bad))  # noqa: B023
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
    await until(lambda: has_failed(stream))
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


@pytest.mark.parametrize(("status", "kind"), [(400, DeviceError), (LAUNCH_FAILURE, DeviceLost)])
async def test_the_driver_fails_at_waiting(status: int, kind: type[DeviceError]) -> None:
    way, stream, other = tracker("hip:0", 0, "waiter"), Stream(), Stream()
    control("hold compute 0")
    other.kernel()
    spared = other.follow(way)
    await trio.sleep(0.01)
    control(f"fail hipEventSynchronize {status} 1")
    stream.kernel()
    mark = stream.follow(way)
    with trio.fail_after(10), pytest.raises(kind):
        await wait_mark(mark)
    assert spared.settled is (kind is DeviceLost)
    way.close()


async def test_the_driver_takes_no_host_function() -> None:
    way, stream = tracker("hip:0", 0, "host-function"), Stream()
    control("hold compute 0")
    stream.kernel()
    control("fail hipLaunchHostFunc 400 1")
    refused, taken = stream.follow(way), stream.follow(way)
    assert type(refused.error) is DeviceError
    assert not taken.settled
    control("release compute 0")
    with trio.fail_after(10):
        await wait_mark(taken)
    way.close()


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


@two_devices
def test_a_lent_thread_gets_its_device_back() -> None:
    current = cupy.cuda.runtime.getDevice
    with current_device(1):
        assert current() == 1
    assert current() == 0
    control(f"fail hipSetDevice {LAUNCH_FAILURE} 2")
    with current_device(1):
        pass  # what cannot be restored does not hide what was done
    assert current() == 1
    cupy.cuda.runtime.setDevice(0)


@two_devices
@pytest.mark.parametrize("name", list(WAYS))
async def test_a_device_that_cannot_be_made_current(name: str) -> None:
    with cupy.cuda.Device(1):
        stream = Stream()
        control("hold compute 1")
        stream.kernel()
        event = stream.record()
    way, mark = tracker("hip:1", 1, name), Mark()
    control(f"fail hipSetDevice {LAUNCH_FAILURE} 1")
    way.follow(stream.ptr, event, mark)
    with trio.fail_after(10), pytest.raises(DeviceLost, match="hip:1"):
        await wait_mark(mark)
    way.close()


@two_devices
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
