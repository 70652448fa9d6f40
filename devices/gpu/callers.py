"""What the caller has under way on a GPU outside plait: its streams, to start behind, and its arrays, to read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from plait.devices.gpu import driver


def joins(ordinals: Iterable[int]) -> list[Any]:
    """Driver events behind all that this thread's current stream and the legacy default stream of each device hold now.

    plait never enqueues in the default stream, and its own streams do not wait for it by themselves. Raises CuPy's
    error if a device does not answer.
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


def carried() -> AbstractContextManager[object]:
    """To enter on another thread: this thread's CuPy device and stream, current there too. Nothing without CuPy."""
    if "cupy" not in sys.modules:
        return nullcontext()
    try:
        device, stream = driver.cupy().cuda.Device(), driver.cupy().cuda.get_current_stream()
    except driver.runtime().CUDARuntimeError:  # no driver, and so nothing to carry
        return nullcontext()
    return _Both(device, stream)


class _Both:
    """A device and a stream of it, current inside."""

    def __init__(self, device: Any, stream: Any) -> None:
        self._device = device
        self._stream = stream

    def __enter__(self) -> None:
        self._device.__enter__()
        self._stream.__enter__()

    def __exit__(self, *_: object) -> None:
        self._stream.__exit__(None, None, None)
        self._device.__exit__(None, None, None)


def fetch(array: Any, behind: Sequence[Any]) -> Any:
    """A device array of the caller, or a container of such, on the host, read behind the given driver events.

    Blocks the thread.
    """
    if isinstance(array, list | tuple):
        parts = [fetch(part, behind) for part in array]
        return type(array)._make(parts) if hasattr(array, "_make") else type(array)(parts)
    if isinstance(array, dict):
        return {key: fetch(part, behind) for key, part in array.items()}
    if not isinstance(array, driver.cupy().ndarray):
        return array
    with array.device:
        stream = driver.cupy().cuda.Stream(non_blocking=True)
        for event in behind:
            stream.wait_event(event)
        return array.get(stream=stream)
