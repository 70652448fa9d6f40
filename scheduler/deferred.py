"""Values that a simulated device has not made yet: arguments are taken when an item is enqueued, used when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from plait.devices.sim import NOTHING, Op
from plait.errors import DeviceError
from plait.scheduler.containers import leaves, rebuilt

_UNFILLED = object()


class Cell:
    """A value in the memory of a simulated place, counted there while someone holds it. In a dry run, only its size."""

    __slots__ = ("freed", "memory", "nbytes", "queue", "value")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self.nbytes = 0
        self.memory = memory
        self.value = _UNFILLED
        self.freed = False
        self.queue: Any = None  # the stream whose order frees it, None if the host frees it
        if nbytes > 0:
            memory.take(nbytes)
            self.nbytes = nbytes

    def __repr__(self) -> str:
        return f"<Cell of {self.nbytes} bytes on {self.memory.name}>"

    def __del__(self) -> None:
        if self.nbytes:
            self.memory.give(self.nbytes)

    def __getitem__(self, key: Any) -> _Part:
        return _Part(self, (key,))

    def fill(self, value: Any) -> None:
        """The item that makes it has run."""
        nbytes = getattr(value, "nbytes", 0)
        if nbytes > self.nbytes:
            self.memory.take(nbytes - self.nbytes)
        else:
            self.memory.give(self.nbytes - nbytes)
        self.nbytes = nbytes
        self.value = value

    def free(self) -> None:
        """Its last user is done; or, if one stream alone uses it, is in that stream: then it goes in its order."""
        if self.queue is None:
            self.freed = True
        else:
            self.queue.push(Op(NOTHING, task=self._freed))

    def _freed(self) -> None:
        self.freed = True

    def get(self) -> Any:
        """The value; DeviceError if it is not there, which an order that holds rules out."""
        if self.freed:
            raise DeviceError(f"a value of {self.nbytes} bytes on {self.memory.name} was used after it was freed")
        if self.value is _UNFILLED:
            raise DeviceError(f"a value on {self.memory.name} was used before it was made")
        return self.value


class _Part:
    """A slice of a cell's value, taken when it is used."""

    __slots__ = ("_cell", "_keys")

    def __init__(self, cell: Cell, keys: tuple[Any, ...]) -> None:
        self._cell = cell
        self._keys = keys

    def __getitem__(self, key: Any) -> _Part:
        return _Part(self._cell, (*self._keys, key))

    def get(self) -> Any:
        value = self._cell.get()
        for key in self._keys:
            value = value[key]
        return value


class Sized:
    """A value of a dry run on the host: nothing but its size, counted while someone holds it."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self.memory = memory
        self.nbytes = 0
        if nbytes > 0:
            memory.take(nbytes)
            self.nbytes = nbytes

    def __del__(self) -> None:
        if self.nbytes:
            self.memory.give(self.nbytes)

    def __repr__(self) -> str:
        return f"<{self.nbytes} bytes of a dry run>"


SIMULATED = (Cell, Sized)


def resolved(arg: Any) -> Any:
    """An argument with the values of its cells in their place, in nested containers too."""
    if not any(isinstance(part, Cell | _Part) for part in leaves(arg)):
        return arg
    return rebuilt(arg, lambda part: part.get() if isinstance(part, Cell | _Part) else part)


def copied(value: Any) -> Any:
    """The same contents in other memory: what a transfer makes."""
    value = value.get() if isinstance(value, Cell) else value
    return rebuilt(value, lambda part: part.copy() if isinstance(part, np.ndarray) else part)
