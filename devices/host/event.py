"""A host event: a handle on the mark that its last recording set in a stream."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from plait.devices.mark import Mark
from plait.devices.protocol import Event, EventStatus
from plait.devices.waiting import wait_mark
from plait.errors import DeviceError


class HostEvent:
    """Pending, done or failed; never recorded counts as done.

    Times come from ``time.perf_counter_ns``, which is monotonic.
    """

    __slots__ = ("__weakref__", "_mark")

    def __init__(self) -> None:
        self._mark: Mark | None = None

    def __repr__(self) -> str:
        return f"<HostEvent {'never recorded' if self._mark is None else self._mark.status.value}>"

    @property
    def status(self) -> EventStatus:
        mark = self._mark
        return EventStatus.DONE if mark is None else mark.status

    @property
    def done(self) -> bool:
        """True once reached without failure; raises the stream's error if it failed."""
        mark = self._mark
        if mark is None:
            return True
        if mark.settled:
            mark.raise_error()
        return mark.settled

    @property
    def error(self) -> BaseException | None:
        mark = self._mark
        return None if mark is None else mark.error

    @property
    def timing(self) -> bool:
        """Whether the last recording keeps its time."""
        return self._mark is not None and self._mark.timing

    @property
    def time_ns(self) -> int | None:
        """When it was reached, on the clock of ``time.perf_counter_ns``; None if pending, failed or without
        timing.
        """
        mark = self._mark
        return mark.time_ns if mark is not None and mark.timing and mark.settled and mark.error is None else None

    def elapsed(self, earlier: Event) -> float:
        """Seconds from ``earlier`` to this event; DeviceError if either is pending, failed or has no time."""
        if not isinstance(earlier, HostEvent):
            raise DeviceError(f"elapsed needs two events of one platform, not a host event and {earlier!r}")
        return (self._time("this event") - earlier._time("the earlier event")) / 1e9

    def _time(self, which: str) -> int:
        mark = self._mark
        if mark is None:
            raise DeviceError(f"elapsed: {which} was never recorded")
        if not mark.timing:
            raise DeviceError(f"elapsed: {which} was recorded with timing=False")
        if not mark.settled:
            raise DeviceError(f"elapsed: {which} is still pending; await it first")
        if mark.error is not None:
            raise DeviceError(f"elapsed: {which} failed, so it has no time") from mark.error
        return mark.time_ns

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call once when settled, on any thread, at once if it is. The callback must not raise or block."""
        mark = self._mark
        if mark is None:
            callback()
        else:
            mark.subscribe(callback)

    def snapshot(self) -> Mark | None:
        """The mark of the last recording, which a later one does not touch; None if never recorded."""
        return self._mark

    def move(self, mark: Mark) -> None:
        """For the stream that records: the event stands for ``mark`` from now on."""
        self._mark = mark

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until settled; a checkpoint always.

        Raises the stream's error; cancelling leaves the stream alone.
        """
        return wait_mark(self._mark).__await__()
