"""Where the bytes of an allocation that is away are: nowhere yet, in the caller's array, on the host, in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from plait.scheduler.memory.allocation import View
from plait.scheduler.memory.spill import Extent, SpillFile


@dataclass(frozen=True, slots=True)
class Filled:
    """Not made yet: a run's own buffer before its first use."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: Any


@dataclass(frozen=True, slots=True)
class Original:
    """The caller's array, of which the run wants a copy to change."""

    array: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class OnHost:
    """A device's bytes as a host array, or as what stands for one in a simulation."""

    array: Any


Backing = Filled | Original | OnHost | Extent


def made_on_host(backing: Backing, views: dict[int, View], file: SpillFile) -> dict[int, Any]:
    """The values by slot, in memory of their own. Called without the lock; MemoryError or OSError if that fails."""
    if isinstance(backing, Filled):
        if backing.value is None:
            value = np.empty(backing.shape, backing.dtype)
        elif np.isscalar(backing.value) and backing.value == 0:
            value = np.zeros(backing.shape, backing.dtype)
        else:
            value = np.full(backing.shape, backing.value, backing.dtype)
        return dict.fromkeys(views, value)
    if isinstance(backing, Original | OnHost):
        return dict.fromkeys(views, backing.array.copy())
    flat = np.empty(backing.nbytes, np.uint8)
    file.read(backing, flat)
    return {slot: view.of(flat) for slot, view in views.items()}


def delivered(backing: Backing, view: View | None, file: SpillFile) -> Any:
    """A value for the caller, whose memory it is from then on; what lies in the file is mapped, not read."""
    if isinstance(backing, Extent):
        assert view is not None, "a spilled value without its place in the file"
        return view.of(file.mapped(backing))
    return made_on_host(backing, {0: view or View(0, (), (), np.dtype(np.uint8), True)}, file)[0]
