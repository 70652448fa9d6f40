"""The regions of a pool: what it has taken from upstream, how it grows, and what goes back."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from plait.devices.blocks import checked_view
from plait.devices.memory.bins import GRAIN
from plait.devices.protocol import Allocator, Block
from plait.errors import OutOfMemory

LEAST = 2 << 20  # bytes of a region, unless the limit leaves less
# A further region is an eighth of what is reserved: doubling, as other pools do, left up to a half of it unused.
PART = 8
FEW = 4
BACK_OFF = 0.9  # what is tried next when upstream refuses


class Regions:
    """Blocks by number. ``used`` counts a region's taken chunks; ``idle`` has those without, unused longest first."""

    def __init__(self, upstream: Allocator, limit: int | None) -> None:
        self._upstream = upstream
        self._limit = limit
        self._spare: list[int] = []
        self._data: list[Any] = []
        self.blocks: list[Block | None] = []
        self.used: list[int] = []
        self.first: list[int] = []  # the handle of the chunk at the start: it stays, whatever is cut and joined
        self.idle: dict[int, None] = {}
        self.reserved = self.peak = 0  # bytes
        self.refusal: OutOfMemory | None = None  # what upstream said last

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.blocks) - len(self._spare)

    def room(self) -> float:
        """Bytes that the limit leaves."""
        return float("inf") if self._limit is None else (self._limit - self.reserved) & -GRAIN

    def grow(self, size: int) -> int:
        """A new region of at least ``size`` bytes, a multiple of GRAIN; -1 if the limit or upstream refuses."""
        self.refusal = None
        room = self.room()
        if room < size:
            return -1
        wanted = max(LEAST, self.reserved // PART // LEAST * LEAST)
        if wanted < FEW * size:
            wanted += -wanted % size  # room for whole ones: like follows like
        wanted = int(min(room, wanted))
        while True:
            try:
                block = self._upstream.allocate(wanted, alignment=GRAIN)
                break
            except OutOfMemory as error:
                self.refusal = error
                if wanted == size:
                    return -1
                wanted = max(size, int(wanted * BACK_OFF) & -GRAIN)
        self.reserved += wanted
        self.peak = max(self.peak, self.reserved)
        region = self._spare.pop() if self._spare else len(self.blocks)
        if region == len(self.blocks):
            self.blocks.append(block)
            self.used.append(0)
            self.first.append(0)
            self._data.append(None)
        else:
            self.blocks[region] = block
        self.idle[region] = None
        return region

    def release(self, region: int) -> int:
        """Give an idle region back upstream; its bytes."""
        block = self.blocks[region]
        assert block is not None
        self._upstream.free(block)
        self.blocks[region] = self._data[region] = None
        del self.idle[region]
        self._spare.append(region)
        self.reserved -= block.nbytes
        return block.nbytes

    def view(self, region: int, address: int, room: int, shape: int | tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """The platform's array over the ``room`` bytes at an address of a region; DeviceError if they are too few.

        On the host no other array is its base: who goes by bases sees the block, not the region.
        """
        block = self.blocks[region]
        assert block is not None
        data = self._data[region]
        if data is None:
            data = self._data[region] = _without_base(block.array(block.nbytes, np.uint8))
        offset = address - block.address
        on_host = isinstance(data, memoryview)
        if on_host and not dtype.hasobject:
            try:
                array: Any = np.ndarray(shape, dtype, data, offset)
                if array.nbytes <= room:
                    return array
            except (TypeError, ValueError):
                pass  # the check says it better; done first it would cost more than all the rest
        dims, _, nbytes = checked_view(shape, dtype, room)
        return (
            np.ndarray(dims, dtype, data, offset)
            if on_host
            else data[offset : offset + nbytes].view(dtype).reshape(dims)
        )

    def nothing(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array of the platform without bytes."""
        block = self._upstream.allocate(0)
        array = block.array(shape, dtype)
        self._upstream.free(block)
        return array


def _without_base(data: Any) -> Any:
    """A host array's bytes as a buffer that belongs to no array, so arrays over it have none as base; others as is."""
    if not isinstance(data, np.ndarray):
        return data
    bytes_of = (ctypes.c_ubyte * data.nbytes).from_buffer
    return memoryview(bytes_of(data)).cast("B")  # type: ignore[arg-type]
