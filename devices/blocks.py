"""What blocks and allocators of every space have in common: checks of requests, counts of what is held, giving back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from plait.devices.mark import mark_of
from plait.devices.protocol import Stream
from plait.errors import DeviceError


def checked_request(nbytes: int, alignment: int) -> None:
    """DeviceError if no memory can be asked for like that."""
    if nbytes < 0:
        raise DeviceError(f"cannot allocate {nbytes} bytes")
    if alignment < 1 or alignment & (alignment - 1):
        raise DeviceError(f"alignment must be a power of two, not {alignment}")


def checked_view(shape: int | tuple[int, ...], dtype: Any, nbytes: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and bytes of an array over a block of ``nbytes``; DeviceError if it does not fit or is no number."""
    dims, kind = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
    if any(dim < 0 for dim in dims):
        raise DeviceError(f"an array cannot have the shape {dims}")
    wanted = math.prod(dims) * kind.itemsize
    if wanted > nbytes:
        raise DeviceError(f"an array of {dims} {kind} needs {wanted} bytes, the block has {nbytes}")
    if kind.hasobject:
        raise DeviceError(f"a block is plain bytes and cannot hold dtype {kind}")
    return dims, kind, wanted


class Counts:
    """Allocations so far, blocks and bytes in use, their peak, the largest block; guarded by its allocator's lock."""

    def __init__(self) -> None:
        self.allocations = self.blocks = self.in_use = self.peak = self.largest = 0

    def took(self, nbytes: int) -> None:
        """A block was allocated."""
        self.allocations += 1
        self.blocks += 1
        self.in_use += nbytes
        self.peak = max(self.peak, self.in_use)
        self.largest = max(self.largest, nbytes)

    def gave(self, nbytes: int) -> None:
        """A block was given back."""
        self.blocks -= 1
        self.in_use -= nbytes

    def snapshot(self, limit: int | None = None) -> Mapping[str, int]:
        """The figures by name, with the limit if there is one."""
        names = ("allocations", "blocks", "in_use", "peak", "largest")
        figures = {name: getattr(self, name) for name in names}
        return MappingProxyType(figures if limit is None else figures | {"limit": limit})


class Freed(Protocol):
    """A block as ``free_behind`` sees it."""

    _freed: bool


def free_behind(
    block: Freed, lock: AbstractContextManager[Any], stream: Stream | None, release: Callable[[], None]
) -> None:
    """Release a block at once, or when ``stream`` has passed all that it holds now. Twice is a DeviceError."""
    mark = None if stream is None else mark_of(stream)
    with lock:
        if block._freed:
            raise DeviceError(f"{block!r} is freed a second time")
        block._freed = True
    if mark is None:
        release()
    else:
        mark.subscribe(release)
