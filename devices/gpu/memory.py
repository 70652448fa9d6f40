"""Memory spaces of a GPU: device memory from CuPy's allocator in force, pinned host memory, managed memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.devices.blocks import Counts, checked_request, checked_view, free_behind
from plait.devices.gpu import driver, managed
from plait.devices.protocol import Block, Stream
from plait.errors import DeviceError, OutOfMemory

if TYPE_CHECKING:
    from plait.devices.gpu.device import GpuDevice


class GpuBlock:
    """Bytes that an allocator gave. Arrays over it keep its memory, but are no longer counted after ``free``."""

    __slots__ = ("_allocator", "_freed", "_memory", "address", "nbytes")

    def __init__(self, allocator: GpuAllocator, memory: Any, address: int, nbytes: int) -> None:
        self._allocator = allocator
        self._memory = memory
        self._freed = False
        self.address = address
        self.nbytes = nbytes

    def __repr__(self) -> str:
        return f"<GpuBlock {self.nbytes} bytes at {self.address:#x}{' freed' if self._freed else ''}>"

    def array(self, shape: int | tuple[int, ...], dtype: Any = np.uint8) -> Any:
        """The block's first bytes as an array; DeviceError if there are too few or the block is freed."""
        if self._freed or self._memory is None:
            raise DeviceError(f"{self!r} has been freed")
        dims, kind, _ = checked_view(shape, dtype, self.nbytes)
        return self._allocator.view(self._memory, self.address, dims, kind)

    def prefetch(self, stream: Stream, *, to: str = "device") -> None:
        """Managed memory: bring the pages to the ``"device"`` or the ``"host"``, in the order of ``stream``."""
        managed.prefetch(self._managed(), self.address, self.nbytes, stream, to)

    def advise(self, advice: str, *, of: str = "device") -> None:
        """Managed memory: how the pages are used on the ``"device"`` or the ``"host"``.

        ``"read mostly"`` lets each keep a copy, ``"stay"`` prefers them there, ``"reached from"`` maps them there;
        ``"not read mostly"``, ``"stay anywhere"`` and ``"not reached from"`` take that back.
        """
        managed.advise(self._managed(), self.address, self.nbytes, advice, of)

    def _managed(self) -> GpuDevice:
        if self._allocator.space != "managed":
            raise DeviceError(
                f"{self._allocator.space} memory stays where it is: only blocks of memory('managed') move between "
                "host and device"
            )
        if self._freed:
            raise DeviceError(f"{self!r} has been freed")
        return self._allocator.device


class GpuAllocator:
    """One memory space of a GPU, counted. May be used from any thread.

    ``space`` is ``device`` (through the allocator that CuPy uses, so one that the user has set is respected),
    ``pinned`` (page-locked host memory: blocks give NumPy arrays) or ``managed`` (one pointer for host and device).
    """

    def __init__(self, device: GpuDevice, space: str = "device") -> None:
        if space not in _SPACES:
            raise DeviceError(f"a GPU's memory space is one of {', '.join(_SPACES)}, not {space!r}")
        self.space = space
        self.device = device
        # Guards the figures below: blocks are allocated and freed from any thread.
        self._lock = threading.RLock()
        self._counts = Counts()

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Stream | None = None) -> GpuBlock:
        """Bytes at a multiple of ``alignment``, a power of two, in the order of ``stream`` if one is given.

        OutOfMemory, with what is in use and what the device has, if the driver refuses.
        """
        checked_request(nbytes, alignment)
        cupy = driver.cupy()
        room = nbytes + (alignment if alignment > _ALIGNED else 0)
        try:
            with cupy.cuda.Device(self.device.ordinal):
                if stream is None:
                    memory = _raw(self.space, room)
                else:
                    with stream.driver:  # type: ignore[attr-defined]
                        memory = _raw(self.space, room)
        except Exception as error:
            raise self._refused(error, nbytes) from error
        address = int(memory.ptr)
        address += -address % alignment
        with self._lock:
            self._counts.took(nbytes)
        return GpuBlock(self, memory, address, nbytes)

    def free(self, block: Block, *, stream: Stream | None = None) -> None:
        """Give the bytes back: at once, or when ``stream`` has passed all that it holds now. Twice is a DeviceError."""
        if not isinstance(block, GpuBlock) or block._allocator is not self:
            raise DeviceError(f"{block!r} is not of this allocator")
        free_behind(block, self._lock, stream, lambda: self._release(block))

    def statistics(self) -> Mapping[str, int]:
        """A snapshot: ``allocations`` so far, ``blocks`` live, bytes ``in_use``, ``peak``, ``largest``."""
        with self._lock:
            return self._counts.snapshot()

    def view(self, memory: Any, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """For blocks: an array over memory of this space."""
        offset = address - int(memory.ptr)
        if self.space == "pinned":
            count = math.prod(shape)
            return np.frombuffer(memory, dtype, count, offset).reshape(shape) if count else np.empty(shape, dtype)
        with driver.cupy().cuda.Device(self.device.ordinal):
            return driver.cupy().ndarray(shape, dtype, memory + offset)

    def _release(self, block: GpuBlock) -> None:
        with self._lock:
            memory, block._memory = block._memory, None
            self._counts.gave(block.nbytes)
        del memory  # outside the lock: it may call the driver

    def _refused(self, error: BaseException, nbytes: int) -> BaseException:
        found = driver.translated(error, self.device.name, f"allocating {nbytes} bytes")
        if not isinstance(found, OutOfMemory):
            return self.device.noted(found)
        figures = self.statistics()
        free, total = memory_info(self.device.ordinal)
        return OutOfMemory(
            f"{self.device.name} cannot serve {nbytes} bytes of {self.space} memory: {figures['in_use']} bytes in use "
            f"in {figures['blocks']} blocks of this allocator, {free} of the device's {total} bytes free; "
            f"peak {figures['peak']}, largest block so far {figures['largest']}"
        )


_ALIGNED = 256  # what every driver's allocations are aligned to
_SPACES = ("device", "pinned", "managed")


def _raw(space: str, nbytes: int) -> Any:
    """Memory of a space, from CuPy; the device is current."""
    cuda = driver.cupy().cuda
    if space == "device":
        return cuda.alloc(nbytes)
    return (cuda.alloc_pinned_memory if space == "pinned" else cuda.malloc_managed)(max(1, nbytes))


def memory_info(ordinal: int) -> tuple[int, int]:
    """Free and total bytes of a device by its driver; (0, 0) if it does not answer."""
    try:
        with driver.cupy().cuda.Device(ordinal):
            free, total = driver.runtime().memGetInfo()
    except driver.runtime().CUDARuntimeError:
        return 0, 0
    return int(free), int(total)
