"""What the caller has under way on a GPU outside plait: its streams, to start behind, and its arrays, to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plait.devices.gpu import driver


def joins(ordinals: Iterable[int]) -> list[Any]:
    """Driver events behind all that this thread's current stream and the legacy default stream of each device hold now.

    plait never enqueues in the default stream, and its own streams do not wait for it by themselves.
    """
    cuda = driver.cupy().cuda
    events = []
    for ordinal in ordinals:
        with cuda.Device(ordinal):
            current = cuda.get_current_stream()
            streams = [cuda.Stream.null] if current.ptr == cuda.Stream.null.ptr else [cuda.Stream.null, current]
            for stream in streams:
                event = cuda.Event(disable_timing=True)
                event.record(stream)
                events.append(event)
    return events


def fetch(array: Any, behind: Iterable[Any]) -> Any:
    """A device array of the caller as a NumPy array, read behind the given driver events. Blocks the thread."""
    with array.device:
        stream = driver.cupy().cuda.Stream(non_blocking=True)
        for event in behind:
            stream.wait_event(event)
        return array.get(stream=stream)
