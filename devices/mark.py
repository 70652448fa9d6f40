"""A mark: one point that work passes once, pending then done or failed, and who hears of it.

Events and streams of every platform are seen through marks: recording an event again gives it a new mark, so
a wait that holds the old one is not disturbed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any

from plait.devices.protocol import Event, EventStatus, Stream
from plait.errors import DeviceError

logger = logging.getLogger("plait.devices")

# Guards the callbacks of marks that belong to no pool (other platforms' events): they settle on any thread.
_SHARED_LOCK = threading.RLock()


class Mark:
    """Settles once, on any thread.

    ``error`` and ``time_ns`` are meant to be read once ``settled`` is true.
    """

    __slots__ = ("_callbacks", "_lock", "error", "settled", "time_ns", "timing", "traceback")

    def __init__(self, lock: Any = _SHARED_LOCK, *, timing: bool = False) -> None:
        self._lock = lock
        self._callbacks: dict[Hashable, Callable[[], None]] | None = None
        self.timing = timing
        self.time_ns = 0
        self.settled = False
        self.error: BaseException | None = None
        self.traceback: TracebackType | None = None

    @property
    def status(self) -> EventStatus:
        if not self.settled:
            return EventStatus.PENDING
        return EventStatus.DONE if self.error is None else EventStatus.FAILED

    def settle(self, error: BaseException | None = None, *, time_ns: int = 0) -> None:
        """Pass the point, and tell all who subscribed; a second time changes nothing."""
        with self._lock:
            if self.settled:
                return
            if error is not None:
                self.error = error
                self.traceback = error.__traceback__
            self.time_ns = time_ns
            self.settled = True
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks.values():
                _tell(callback)

    def subscribe(self, callback: Callable[[], None], key: Hashable = None) -> None:
        """Call once when settled, at once if it is; ``key`` is for ``unsubscribe`` and must be new to this
        mark.
        """
        with self._lock:
            if not self.settled:
                if self._callbacks is None:
                    self._callbacks = {}
                self._callbacks[object() if key is None else key] = callback
                return
        _tell(callback)

    def unsubscribe(self, key: Hashable) -> None:
        """Forget a callback; one that has been called or was never there is no error."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.pop(key, None)

    def raise_error(self) -> None:
        """Raise the error if failed, always with the traceback it settled with: raising often must not grow
        it.
        """
        if self.error is not None:
            raise self.error.with_traceback(self.traceback)


def _tell(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("an event's callback raised; callbacks must not, so this one is ignored: %r", callback)


def mark_of(thing: object) -> Mark | None:
    """The mark that an event has, or that a stream's present work has, now; None if there is nothing to wait
    for.

    A platform built on marks offers ``snapshot()``. Any other event is followed through its callback, and any
    other stream
    through an event recorded in it.
    """
    snapshot = getattr(thing, "snapshot", None)
    if snapshot is not None:
        mark = snapshot()
        if mark is None or isinstance(mark, Mark):
            return mark
    if isinstance(thing, Stream):
        return mark_of(thing.record(timing=False))
    if isinstance(thing, Event):
        event, mark = thing, Mark()
        event.add_callback(lambda: mark.settle(event.error))
        return mark
    raise DeviceError(f"cannot wait for {thing!r}: it is neither a plait event nor a plait stream")
