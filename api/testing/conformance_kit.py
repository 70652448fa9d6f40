"""What the conformance suite stands on: the ``platform`` fixture, a gate to hold streams with, bounded
waiting.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from plait.devices import platforms
from plait.devices.mark import Mark
from plait.devices.protocol import Device, Event, EventStatus, Platform, Stream
from plait.devices.waiting import wait_mark
from plait.errors import DeviceError

TIMEOUT_S = 30.0  # a bound on hanging, not on speed; a platform that conforms never comes near it


class Gate:
    """An event that the test settles: holds a stream without holding one of its workers.

    It has what the protocol asks and no more, so it also shows that a platform waits for events of other
    platforms.
    """

    def __init__(self) -> None:
        self._mark = Mark()

    def open(self) -> None:
        self._mark.settle()

    def fail(self, error: BaseException) -> None:
        self._mark.settle(error)

    @property
    def status(self) -> EventStatus:
        return self._mark.status

    @property
    def done(self) -> bool:
        if self._mark.error is not None:
            raise self._mark.error
        return self._mark.settled

    @property
    def error(self) -> BaseException | None:
        return self._mark.error

    def elapsed(self, earlier: Event) -> float:
        raise DeviceError("a gate has no time")

    def add_callback(self, callback: Callable[[], None]) -> None:
        self._mark.subscribe(callback)

    def __await__(self) -> Generator[Any, Any, None]:
        return wait_mark(self._mark).__await__()


class Mishap(Exception):
    """What operations raise on purpose."""


def fail_with(error: BaseException) -> None:
    raise error


def within_time(function: Callable[..., Awaitable[object]], *args: object) -> None:
    """Run an async function under trio; AssertionError instead of a hang."""

    async def bounded() -> None:
        with trio.move_on_after(TIMEOUT_S) as scope:
            await function(*args)
        assert not scope.cancelled_caught, f"nothing happened for {TIMEOUT_S} s"

    trio.run(bounded)


def finish(*streams: Stream) -> None:
    """Wait for all that the streams hold; raises the error of one that failed."""

    async def synchronize() -> None:
        for stream in streams:
            await stream.synchronize()

    within_time(synchronize)


def settle(*events: Event) -> None:
    """Wait until the events are settled, failed or not."""
    remaining = [threading.Event() for _ in events]
    for event, heard in zip(events, remaining, strict=True):
        event.add_callback(heard.set)
    for heard in remaining:
        assert heard.wait(TIMEOUT_S), f"an event did not settle within {TIMEOUT_S} s"


def give_others_a_chance(device: Device) -> None:
    """See other streams' work come and go, so that what is runnable and should not be has had its turn."""
    for _ in range(3):
        streams = [device.stream() for _ in range(8)]
        for stream in streams:
            stream.enqueue(int)
        finish(*streams)


@contextmanager
def busy(device: Device, count: int, *, priority: int) -> Iterator[None]:
    """Occupy the workers inside the block: ``count`` streams each hold the thread that serves them."""
    release = threading.Event()
    streams = [device.stream(priority=priority) for _ in range(count)]
    for stream in streams:
        stream.enqueue(release.wait, TIMEOUT_S)
    try:
        yield
    finally:
        release.set()
    finish(*streams)


def find_platform(name: str) -> Platform:
    """``NAME`` of a registered platform, or ``module:attribute`` that is a Platform or makes one."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        known = {platform.name.lower(): platform for platform in platforms()}
        if name.lower() not in known:
            raise pytest.UsageError(f"--plait-platform: no platform {name!r}, known are: {', '.join(known)}")
        found = known[name.lower()]
        if found.absent is not None:
            raise pytest.UsageError(f"--plait-platform: the platform {name!r} is absent: {found.absent}")
        return found
    try:
        made: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            made = getattr(made, part)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"--plait-platform={name}: {error}") from error
    if isinstance(made, type) or not isinstance(made, Platform):
        try:
            made = made()
        except Exception as error:
            raise pytest.UsageError(f"--plait-platform={name}: {type(error).__name__}: {error}") from error
    if not isinstance(made, Platform):
        raise pytest.UsageError(f"--plait-platform={name} gives {type(made).__name__}, which is no plait Platform")
    return made


_found: dict[str, Platform] = {}


@pytest.fixture
def platform(request: pytest.FixtureRequest) -> Platform:
    """The platform under test. Its ``exempt`` maps names of tests to the reason why it does not take them."""
    name = request.config.getoption("--plait-platform")
    if name not in _found:
        _found[name] = find_platform(name)
    reason = getattr(_found[name], "exempt", {}).get(request.node.name)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    return _found[name]
