"""A GPU event: a handle on its last recording, which settles when the driver's event is reached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from plait.devices.gpu import driver
from plait.devices.mark import Mark
from plait.devices.protocol import Event, EventStatus
from plait.devices.waiting import wait_mark
from plait.errors import DeviceError

if TYPE_CHECKING:
    from plait.devices.gpu.queue import LaunchQueue

# Guards the arming of recordings: whoever first wants to hear of one may be on any thread, and it is followed once,
# in the order of its stream.
_ARMING = threading.Lock()


class Recording:
    """One recording of an event: ``issued`` settles once the driver knows of it, ``mark`` once it is reached.

    Nothing follows a recording until someone asks for its mark, so an event that nobody awaits costs no wake-up.
    """

    __slots__ = ("_mark", "_number", "event", "issued", "queue", "timing")

    def __init__(self, queue: LaunchQueue, *, timing: bool) -> None:
        self.queue = queue
        self.timing = timing
        self.event: Any = None
        self.issued: Mark | None = None
        self._mark: Mark | None = None
        self._number = 0

    def issue(self) -> None:
        """Record in the driver's stream."""
        self.event = self.queue.record(timing=self.timing)
        self.queue.recorded = self._number = self.queue.recorded + 1

    def look(self) -> tuple[EventStatus, BaseException | None]:
        """What it is now, by the driver's own status: an event of a failed device is failed, never pending."""
        mark, issued = self._mark, self.issued
        if mark is not None and mark.settled:
            return mark.status, mark.error
        if issued is None or not issued.settled:
            return EventStatus.PENDING, None
        if issued.error is not None:
            return EventStatus.FAILED, issued.error
        status = driver.runtime().eventQuery(self.event.ptr)
        if status == driver.SUCCESS:
            return EventStatus.DONE, None
        if status == driver.NOT_READY:
            return EventStatus.PENDING, None
        device = self.queue.device
        error = device.noted(driver.error(status, device.name, f"work on stream {self.queue.name}"))
        return EventStatus.FAILED, error

    def mark(self) -> Mark:
        """The mark that settles when this recording is reached; followed from the first call on."""
        with _ARMING:
            armed = self._mark is not None
            if self._mark is None:
                self._mark = Mark(timing=self.timing)
                self._mark.subscribe(self._note)  # before anyone: the device is known to be lost when they hear of it
            mark = self._mark
        if not armed and self.issued is not None:
            self.issued.subscribe(self._follow)
        return mark

    def _follow(self) -> None:
        mark, issued = self._mark, self.issued
        if mark is None or issued is None:
            return
        if issued.error is not None:
            mark.settle(issued.error)
            return
        queue, key = self.queue, self.queue.pointer
        with _ARMING:
            if self._number > queue.followed:
                queue.followed = self._number
            else:
                key = -self.event.ptr  # behind a later one it would be heard of too late
        queue.device.tracker.follow(key, self.event, mark)

    def _note(self) -> None:
        if self._mark is not None and self._mark.error is not None:
            self.queue.device.noted(self._mark.error)


class GpuEvent:
    """Pending, done or failed; never recorded counts as done. Times are the device's own."""

    __slots__ = ("__weakref__", "_recording")

    def __init__(self) -> None:
        self._recording: Recording | None = None

    def __repr__(self) -> str:
        return f"<GpuEvent {'never recorded' if self._recording is None else self.status.value}>"

    @property
    def status(self) -> EventStatus:
        return EventStatus.DONE if self._recording is None else self._recording.look()[0]

    @property
    def done(self) -> bool:
        """True once reached without failure; raises the stream's error if it failed."""
        if self._recording is None:
            return True
        status, error = self._recording.look()
        if error is not None:
            raise error
        return status is EventStatus.DONE

    @property
    def error(self) -> BaseException | None:
        return None if self._recording is None else self._recording.look()[1]

    @property
    def timing(self) -> bool:
        """Whether the last recording keeps its time."""
        return self._recording is not None and self._recording.timing

    def elapsed(self, earlier: Event) -> float:
        """Device seconds from ``earlier`` to this event; DeviceError if either is pending, failed or has no time."""
        if not isinstance(earlier, GpuEvent):
            raise DeviceError(f"elapsed needs two events of one platform, not a GPU event and {earlier!r}")
        start, end = earlier._timed("the earlier event"), self._timed("this event")
        return float(driver.runtime().eventElapsedTime(start.ptr, end.ptr)) / 1e3

    def _timed(self, which: str) -> Any:
        recording = self._recording
        if recording is None:
            raise DeviceError(f"elapsed: {which} was never recorded")
        if not recording.timing:
            raise DeviceError(f"elapsed: {which} was recorded with timing=False")
        status, error = recording.look()
        if status is EventStatus.PENDING:
            raise DeviceError(f"elapsed: {which} is still pending; await it first")
        if status is EventStatus.FAILED:
            raise DeviceError(f"elapsed: {which} failed, so it has no time") from error
        return recording.event

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call once when settled, on any thread, at once if it is. The callback must not raise or block."""
        mark = self.snapshot()
        if mark is None:
            callback()
        else:
            mark.subscribe(callback)

    def snapshot(self) -> Mark | None:
        """The mark of the last recording, which a later one does not touch; None if never recorded."""
        return None if self._recording is None else self._recording.mark()

    @property
    def recording(self) -> Recording | None:
        """For streams: the last recording, None if never recorded."""
        return self._recording

    def move(self, recording: Recording) -> None:
        """For the stream that records: the event stands for ``recording`` from now on."""
        self._recording = recording

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until settled; a checkpoint always. Raises the stream's error; cancelling leaves the stream alone."""
        return wait_mark(self.snapshot()).__await__()
