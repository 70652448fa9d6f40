"""How values cross between memory spaces: arrays are copied, containers part by part, everything else as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from plait.devices import LaunchQueue
from plait.scheduler.containers import rebuilt
from plait.scheduler.expand import HOST, Transfer


class Fence:
    """As a copy that moves nothing: ``finish`` blocks until the device has come this far."""

    def __init__(self, queue: LaunchQueue) -> None:
        self._queue = queue
        self._event = queue.record()

    def finish(self) -> None:
        with self._queue.current("waiting for a value"):
            self._event.synchronize()


def transferred(queue: LaunchQueue, item: Transfer, values: list[Any]) -> Any:
    """The new replica of a buffer on the queue's device."""
    if item.source is None:
        buffer = item.buffer
        assert buffer is not None
        if item.filled and buffer.value is not None:
            return queue.full(buffer.shape, buffer.value, buffer.dtype)
        return queue.empty(buffer.shape, buffer.dtype)
    if item.source == HOST:
        queue.wait_default(values[item.source_slot])
    return _brought(queue, values[item.source_slot], values[item.target_slot], copied=item.copied)


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether a device can hold it."""
    return dtype.kind in "biufcV" and dtype.char not in "gG" and not dtype.hasobject


def _brought(queue: LaunchQueue, value: Any, there: Any, *, copied: bool) -> Any:
    """``value`` on the queue's device, in the bytes that are there already if they fit; containers part by part."""
    if isinstance(value, list | tuple | dict):
        return rebuilt(value, lambda part: _brought(queue, part, None, copied=copied))
    on_device = queue.owns(value)
    if not on_device and not (isinstance(value, np.ndarray) and _is_numeric(value.dtype)):
        return value  # text, dates, objects: a device has no arrays of these, and the item gets what there is
    if not on_device and value.dtype.newbyteorder("=") != value.dtype:
        value = value.astype(value.dtype.newbyteorder("="))
    if on_device and queue.is_here(value) and not copied:
        return value
    fits = queue.owns(there) and there.shape == value.shape and there.dtype == value.dtype
    target = there if fits else queue.empty(value.shape, value.dtype)
    if on_device:
        queue.copy_here(target, value)
    else:
        queue.copy_in(target, value)
    return target


def begin_out(queue: LaunchQueue, value: Any) -> tuple[Any, list[Any]]:
    """``value`` as it will be on the host, and the copies to finish before it is.

    A value without arrays, or with empty ones, may still hold what the device works on, so it is waited for like one.
    """
    copies: list[Any] = []

    def begin(part: Any) -> Any:
        if not queue.owns(part):
            return part
        target = np.empty(part.shape, part.dtype)
        if part.size:
            copies.append(queue.copy_out(target, part))
        return target

    made = rebuilt(value, begin)
    return made, copies or [Fence(queue)]


def owned(value: Any, args: Any) -> bool:
    """Whether an array's memory is its own: not a view, and not an argument that was handed through."""
    return getattr(value, "base", value) is None and all(value is not arg for arg in args)
