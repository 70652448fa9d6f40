"""Streams and events of others: CuPy's, PyTorch's, and whatever speaks the ``__cuda_stream__`` protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.devices.gpu import driver
from plait.devices.mark import Mark
from plait.errors import DeviceError

if TYPE_CHECKING:
    from plait.devices.gpu.device import GpuDevice


def is_foreign(thing: object) -> bool:
    """Whether it looks like a GPU stream or event that is not plait's; imports nothing."""
    return hasattr(thing, "__cuda_stream__") or _is_stream(thing) or _is_event(thing)


def foreign_mark(thing: Any) -> Mark:
    """A mark that settles once a foreign event is reached, or all that a foreign stream holds now is done.

    DeviceError if the GPU that it belongs to cannot be found.
    """
    mark = Mark()
    if _is_event(thing):
        device = _device(_ordinal(thing))
        borrowed = _Borrowed(thing)
        device.tracker.follow(-borrowed.ptr, borrowed, mark)
    else:
        pointer = stream_pointer(thing)
        device = _device(_ordinal(thing))
        event = device.foreign_queue(pointer, thing).record()
        device.tracker.follow(pointer, event, mark)
    return mark


def stream_pointer(thing: Any) -> int:
    """The driver's handle of a foreign stream; DeviceError if ``thing`` is none."""
    protocol = getattr(thing, "__cuda_stream__", None)
    if protocol is not None:
        answer = protocol() if callable(protocol) else protocol
        return int(answer[1])
    for attribute in ("ptr", "cuda_stream"):  # CuPy's, PyTorch's
        pointer = getattr(thing, attribute, None)
        if isinstance(pointer, int):
            return pointer
    kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
    raise DeviceError(
        f"a {kind} is no GPU stream: it has neither __cuda_stream__, nor a ptr as CuPy's, nor a cuda_stream"
    )


class Foreign:
    """A driver stream that its owner keeps alive, as CuPy takes it."""

    def __init__(self, pointer: int, owner: Any) -> None:
        self.pointer = pointer
        self.owner = owner

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


class _Borrowed:
    """A foreign event as a tracker takes it: a pointer, kept alive by its owner's object."""

    def __init__(self, event: Any) -> None:
        self.owner = event
        self.ptr = int(event.ptr if hasattr(event, "ptr") else event.cuda_event)

    def synchronize(self) -> None:
        driver.runtime().eventSynchronize(self.ptr)


def _is_stream(thing: object) -> bool:
    return _named(thing, "cupy", "Stream") or _named(thing, "torch", "Stream")


def _is_event(thing: object) -> bool:
    return _named(thing, "cupy", "Event") or _named(thing, "torch", "Event")


def _named(thing: object, package: str, suffix: str) -> bool:
    return any(
        base.__module__.partition(".")[0] == package and base.__name__.endswith(suffix) for base in type(thing).__mro__
    )


def _ordinal(thing: Any) -> int:
    """The device of a foreign stream or event: what it says, else the current one."""
    said = getattr(thing, "device_id", None)
    if said is None:
        said = getattr(getattr(thing, "device", None), "index", None)
    current: int = driver.runtime().getDevice()
    return said if isinstance(said, int) and said >= 0 else current


def _device(ordinal: int) -> GpuDevice:
    from plait.devices.gpu.platform import CUDA, HIP  # noqa: PLC0415  platform imports what imports this module

    for platform in (CUDA, HIP):
        for device in platform.devices():
            if device.ordinal == ordinal:
                return device  # type: ignore[return-value]
    raise DeviceError(f"there is no GPU {ordinal} here to wait on: {CUDA.absent or HIP.absent}")
