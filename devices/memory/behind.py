"""Whether a stream has passed what it holds now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.devices.gpu import driver
from plait.devices.gpu.queue import LaunchQueue
from plait.devices.mark import mark_of


def behind(thing: Any) -> Callable[[], bool]:
    """Marks this point of a plait stream, event or launch queue; the result says whether it has been reached.

    Reached includes failed: what a failed stream still held is skipped, so nothing touches its memory any more.
    DeviceError for anything else.
    """
    if isinstance(thing, LaunchQueue):
        event, query = thing.record(), driver.runtime().eventQuery
        return lambda: bool(query(event.ptr) != driver.NOT_READY)
    mark = mark_of(thing)
    return lambda: mark is None or mark.settled
