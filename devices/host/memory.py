"""Host memory: aligned blocks of NumPy bytes or of pages of their own, counted, with an optional limit."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from plait.devices.blocks import Counts, checked_request, checked_view, free_behind
from plait.devices.host.pages import pages
from plait.devices.protocol import Block, Stream
from plait.errors import DeviceError, OutOfMemory

SPACES = ("pageable", "pages", "huge")


class HostBlock:
    """Bytes that an allocator gave.

    Arrays over it stay valid memory after ``free``, but are no longer counted.
    """

    __slots__ = ("_allocator", "_bytes", "_freed", "address", "nbytes")

    def __init__(self, allocator: HostAllocator, buffer: np.ndarray[Any, Any]) -> None:
        self._allocator = allocator
        self._bytes: np.ndarray[Any, Any] | None = buffer
        self._freed = False
        self.address = int(buffer.ctypes.data)
        self.nbytes = int(buffer.nbytes)

    def __repr__(self) -> str:
        return f"<HostBlock {self.nbytes} bytes at {self.address:#x}{' freed' if self._freed else ''}>"

    def array(self, shape: int | tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
        """The block's first bytes as an array; DeviceError if there are too few or the block is freed."""
        if self._freed or self._bytes is None:
            raise DeviceError(f"{self!r} has been freed")
        dims, kind, nbytes = checked_view(shape, dtype, self.nbytes)
        found: np.ndarray[Any, Any] = self._bytes[:nbytes].view(kind).reshape(dims)
        return found


class HostAllocator:
    """Allocates from the system. Not pooled. May be used from any thread.

    ``space`` is ``pageable`` (through NumPy, so what it keeps for reuse is used), ``pages`` (page aligned, zero, given
    to the system when freed) or ``huge`` (the same on huge pages where the system has them). The last two can be bound
    to a NUMA ``node``; else a page lies on the node of the thread that touches it first.
    """

    block_class = HostBlock

    def __init__(self, space: str = "pageable", *, node: int | None = None, limit_bytes: int | None = None) -> None:
        if limit_bytes is not None and limit_bytes < 0:
            raise DeviceError(f"a memory limit cannot be {limit_bytes} bytes")
        if space not in SPACES:
            raise DeviceError(f"the host's memory space is one of {', '.join(SPACES)}, not {space!r}")
        if node is not None and (space == "pageable" or node < 0):
            raise DeviceError(f"only pages and huge can be bound to a NUMA node >= 0, not {space!r} to {node}")
        self.space = space
        self.node = node
        # Guards the figures below: blocks are allocated and freed from any thread, and the limit is checked
        # against them.
        self._lock = threading.RLock()
        self._limit = limit_bytes
        self._counts = Counts()
        self._asked = 0  # bytes of requests under way

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Stream | None = None) -> HostBlock:
        """Bytes at a multiple of ``alignment``, a power of two.

        OutOfMemory if the limit or the system refuses.
        """
        checked_request(nbytes, alignment)
        with self._lock:
            if self._limit is not None and self._counts.in_use + self._asked + nbytes > self._limit:
                raise self._exhausted(nbytes)
            self._asked += nbytes
        try:
            raw = self._raw(nbytes + alignment)
        except (MemoryError, ValueError, OverflowError, OSError) as error:
            with self._lock:
                self._asked -= nbytes
                raise self._exhausted(nbytes) from error
        start = -int(raw.ctypes.data) % alignment
        block = self.block_class(self, raw[start : start + nbytes])
        with self._lock:
            self._asked -= nbytes
            self._counts.took(nbytes)
        return block

    def free(self, block: Block, *, stream: Stream | None = None) -> None:
        """Give the bytes back: at once, or when ``stream`` has passed all that it holds now.

        Twice is a DeviceError.
        """
        if not isinstance(block, HostBlock) or block._allocator is not self:
            raise DeviceError(f"{block!r} is not of this allocator")
        free_behind(block, self._lock, stream, lambda: self._release(block))

    def statistics(self) -> Mapping[str, int]:
        """A snapshot: ``allocations`` so far, ``blocks`` live, bytes ``in_use``, ``peak``, ``largest``;
        ``limit`` if any.
        """
        with self._lock:
            return self._counts.snapshot(self._limit)

    def _raw(self, nbytes: int) -> np.ndarray[Any, Any]:
        if self.space == "pageable":
            return np.empty(nbytes, np.uint8)
        return pages(nbytes, huge=self.space == "huge", node=self.node)

    def _release(self, block: HostBlock) -> None:
        with self._lock:
            block._bytes = None
            self._counts.gave(block.nbytes)

    def _exhausted(self, nbytes: int) -> OutOfMemory:
        counts = self._counts
        limit = "none" if self._limit is None else f"{self._limit} bytes"
        return OutOfMemory(
            f"host memory cannot serve {nbytes} bytes: {counts.in_use} bytes in use in {counts.blocks} blocks, "
            f"limit {limit}, peak {counts.peak}, largest block so far {counts.largest}"
        )
