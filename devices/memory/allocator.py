"""The pool as an allocator: blocks instead of handles, for whoever takes any allocator."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, cast

from plait.devices.blocks import checked_request, checked_view
from plait.devices.memory.bins import GRAIN
from plait.devices.memory.pool import Pool
from plait.devices.protocol import Block, Stream
from plait.errors import DeviceError


class PoolBlock:
    """Bytes of a pool. They are valid until freed: then the pool may give them to someone else, arrays or not."""

    __slots__ = ("_freed", "address", "handle", "nbytes", "pool")

    def __init__(self, pool: Pool, handle: int, nbytes: int) -> None:
        self.pool = pool
        self.handle = handle
        self.nbytes = nbytes
        self.address = pool.address(handle)
        self._freed = False

    def __repr__(self) -> str:
        return f"<PoolBlock {self.nbytes} bytes at {self.address:#x}{' freed' if self._freed else ''}>"

    def array(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        """The first bytes as an array; DeviceError if there are too few or the block is freed."""
        if self._freed:
            raise DeviceError(f"{self!r} has been freed")
        dims, kind, _ = checked_view(shape, dtype, self.nbytes)
        return self.pool.array(self.handle, dims, kind)

    def release(self, stream: Any) -> None:
        """For the allocator: give the bytes back to the pool, once."""
        if self._freed:
            raise DeviceError(f"{self!r} is freed a second time")
        self._freed = True  # two threads that free at once: the pool itself refuses the later one
        self.pool.give(self.handle, stream)


class PooledAllocator:
    """An ``Allocator`` over a pool. May be used from any thread."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Stream | None = None, tag: Any = None) -> PoolBlock:
        """Bytes at a multiple of ``alignment``, a power of two, free to use in the order of ``stream``.

        OutOfMemory with the pool's report, which calls the block ``tag``.
        """
        checked_request(nbytes, alignment)
        return PoolBlock(self.pool, self.pool.take(nbytes, cast(Hashable, stream), tag, max(alignment, GRAIN)), nbytes)

    def free(self, block: Block, *, stream: Stream | None = None) -> None:
        """Give back: for all, or for ``stream`` at once and for others when it has passed all that it holds now.

        A second time is a DeviceError, and so is a block of another pool.
        """
        if not isinstance(block, PoolBlock) or block.pool is not self.pool:
            raise DeviceError(f"{block!r} is not of this allocator")
        if stream is not None and not hasattr(stream, "record"):
            raise DeviceError(f"cannot free in the order of {stream!r}: it is no plait stream")
        block.release(stream)

    def statistics(self) -> Mapping[str, int]:
        """The pool's figures by name; ``in_use`` does not count what waits for a stream."""
        figures = asdict(self.pool.statistics())
        return MappingProxyType({name: value for name, value in figures.items() if value is not None})
