"""What a run holds in a memory space: arrays that share bytes count once, and go out and come back together."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.scheduler.containers import leaves
from plait.scheduler.deferred import SIMULATED

if TYPE_CHECKING:
    from plait.scheduler.memory.residency import Residency

RESIDENT, LEAVING, AWAY, COMING, GONE = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class View:
    """Where in its allocation's bytes an array lies."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    writeable: bool

    @property
    def nbytes(self) -> int:
        """Bytes of a copy of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def of(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array over ``flat``, all bytes of the allocation."""
        found: np.ndarray[Any, Any] = np.ndarray(self.shape, self.dtype, flat, self.offset, self.strides)
        if not self.writeable:
            found.flags.writeable = False
        return found


class Allocation:
    """Bytes in one place under the values of one slot or more of a run.

    ``fixed``: cannot be moved. ``backing``: where else the same bytes are; None if nowhere. ``root`` tells the
    allocation while it is resident.
    """

    __slots__ = ("backing", "fixed", "nbytes", "owner", "place", "root", "slots", "state", "views")

    def __init__(self, owner: Residency, place: int, nbytes: int, root: int) -> None:
        self.owner = owner
        self.place = place
        self.nbytes = nbytes
        self.root = root
        self.slots: set[int] = set()
        self.state = RESIDENT
        self.fixed = False
        self.backing: Any = None
        self.views: dict[int, View] = {}


def roots(value: Any) -> Iterator[Any]:
    """The objects that own the bytes of every array in ``value``: base arrays, or a device's memory objects."""
    return (root for root, _ in parts_of(value))


def parts_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """The arrays in ``value``, each behind the object that owns its bytes."""
    for part in leaves(value):
        if isinstance(part, np.ndarray):
            yield root_of(part), part
        elif isinstance(part, SIMULATED):
            yield part, part
        elif hasattr(part, "__cuda_array_interface__"):
            memory = getattr(getattr(part, "data", None), "mem", None)
            yield (part if memory is None else memory), part


def copied_bytes(value: Any) -> int:
    """Bytes of a copy of ``value`` in another space, where views are arrays of their own."""
    total = 0
    for part in leaves(value):
        found = getattr(part, "nbytes", 0) if isinstance(part, SIMULATED) or hasattr(part, "shape") else 0
        total += int(found) if isinstance(found, int | np.integer) else 0
    return total


def root_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array at the end of the chain of bases."""
    while True:
        base = array.base
        if base is not None and not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # as_strided and sliding_window_view put an object of theirs between
        if not isinstance(base, np.ndarray):
            return array
        array = base


def root_bytes(root: Any, array: Any) -> int:
    """Bytes that go when the root of ``array`` goes, without what its pool rounds up; none for a mapped file."""
    if isinstance(root, SIMULATED):
        return root.nbytes
    if isinstance(root, np.ndarray):
        return 0 if isinstance(root.base, mmap.mmap) else int(root.nbytes)
    base = getattr(array, "base", None)
    whole = array if base is None else base
    return int(getattr(whole, "nbytes", None) or getattr(root, "size", 0) or 0)


def movable(value: Any, root: Any) -> bool:
    """Whether a value's bytes can be moved away and brought back unseen: a plain array over memory that NumPy owns."""
    if isinstance(root, np.ndarray):
        return (
            type(value) is np.ndarray
            and type(root) is np.ndarray
            and root.base is None
            and not value.dtype.hasobject
            and _in_memory_order(root).flags.c_contiguous
        )
    if isinstance(root, SIMULATED):
        return True
    return hasattr(value, "__cuda_array_interface__") and getattr(value, "base", value) is None


def flat_bytes(root: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All bytes of a dense array, as one row."""
    return _in_memory_order(root).reshape(-1).view(np.uint8)


def _in_memory_order(root: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with its axes from the one with the largest steps to the one with the smallest."""
    if root.flags.c_contiguous:
        return root
    return root.transpose(sorted(range(root.ndim), key=lambda axis: -root.strides[axis]))


def view_in(root: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> View:
    """Where ``value`` lies in its root."""
    offset = 0 if not value.size else value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return View(offset, value.shape, value.strides, value.dtype, bool(value.flags.writeable))
