"""Buffers: the pieces of logical data that items read and write, and basic slices of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.errors import GraphError
from plait.graph.operators import refuses_operators
from plait.graph.region import Region, compose, sliced_shape

if TYPE_CHECKING:
    from plait.graph.graph import Graph
    from plait.graph.item import WorkItem

Shape = tuple[int, ...]

INPUT, CONSTANT, BUFFER, RESULT, RESOURCE = "input", "constant", "buffer", "result", "resource"


@dataclass(frozen=True, slots=True)
class Declared:
    """What was declared of a buffer when it was recorded; all results share one of these."""

    kind: str
    name: str | None = None
    shape: Shape | None = None
    dtype: np.dtype[Any] | None = None
    value: Any = None
    site: int = 0


RESULT_DECLARED = Declared(RESULT)


@refuses_operators
class Buffer:
    """A piece of logical data of one graph: name, shape and dtype (None while unknown).

    An object of this class is a light handle on what the graph holds by index; handles on the same buffer are equal.

    ``kind`` says where its bytes come from: ``"input"`` (bound when run), ``"constant"`` (bound when recorded),
    ``"buffer"`` (allocated by a run) or ``"result"`` (what a call returned; ``item`` is that call).
    """

    __array_ufunc__ = None
    __slots__ = ("declared", "graph", "index", "item")

    def __init__(self, graph: Graph, index: int, item: WorkItem | None, declared: Declared) -> None:
        self.graph = graph
        self.index = index
        self.item = item
        self.declared = declared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffer) and other.index == self.index and other.graph is self.graph

    def __hash__(self) -> int:
        return hash((id(self.graph), self.index))

    @property
    def kind(self) -> str:
        return self.declared.kind

    @property
    def shape(self) -> Shape | None:
        return self.declared.shape

    @property
    def dtype(self) -> np.dtype[Any] | None:
        return self.declared.dtype

    @property
    def value(self) -> Any:
        """A constant's value, or what a run's own buffer is filled with."""
        return self.declared.value

    @property
    def site(self) -> str:
        """``file:line`` that recorded it."""
        return self.item.site if self.item is not None else self.graph.site(self.declared.site)

    @property
    def name(self) -> str:
        """Its name; a result is named after its item, with ``.k`` appended where the item has several."""
        if self.declared.name is not None:
            return self.declared.name
        item = self.item
        if item is None:
            return f"{self.kind}#{self.index}"
        outputs = item.outputs
        return item.name if len(outputs) == 1 else f"{item.name}.{outputs.index(self)}"

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, None while shape or dtype is unknown."""
        if self.shape is None or self.dtype is None:
            return None
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __getitem__(self, key: Any) -> BufferSlice:
        return _slice(self, (key,))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r} shape={self.shape} dtype={self.dtype}>"

    def __iter__(self) -> Any:
        raise GraphError(
            f"{self.name!r} is one buffer and cannot be unpacked while recording; "
            "record the call with options(outputs=n) to get n buffers"
        )

    def __bool__(self) -> bool:
        raise GraphError(f"{self.name!r} has no value while recording: a branch on it belongs inside a work item")


@refuses_operators
class BufferSlice:
    """A basic slice (integers, slices, ``...``, ``None``) of a buffer, possibly a slice of a slice."""

    __array_ufunc__ = None
    __slots__ = ("buffer", "keys", "region", "shape")

    def __init__(self, buffer: Buffer, keys: tuple[Any, ...], region: Region | None, shape: Shape | None) -> None:
        self.buffer = buffer
        self.keys = keys
        self.region = region
        self.shape = shape

    @property
    def name(self) -> str:
        return self.buffer.name + "".join(f"[{_key_text(key)}]" for key in self.keys)

    @property
    def nbytes(self) -> int | None:
        dtype = self.buffer.dtype
        if self.shape is None or dtype is None:
            return None
        return int(np.prod(self.shape, dtype=np.int64)) * dtype.itemsize

    def __getitem__(self, key: Any) -> BufferSlice:
        return _slice(self.buffer, (*self.keys, key))

    def __repr__(self) -> str:
        return f"<slice {self.name} shape={self.shape}>"

    __iter__ = Buffer.__iter__
    __bool__ = Buffer.__bool__


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer, or a slice of one, with the way an item uses it."""

    target: Buffer | BufferSlice
    mode: int


def _slice(buffer: Buffer, keys: tuple[Any, ...]) -> BufferSlice:
    try:
        region = compose(keys, buffer.shape)
        shape = buffer.shape
        for key in keys:
            shape = None if shape is None else sliced_shape(key, shape)
    except (IndexError, TypeError, ValueError) as error:
        text = "".join(f"[{_key_text(key)}]" for key in keys)
        raise GraphError(f"{buffer.name}{text}: {error}") from error
    return BufferSlice(buffer, keys, region, shape)


def _key_text(key: Any) -> str:
    if isinstance(key, tuple):
        return ", ".join(_key_text(part) for part in key)
    if isinstance(key, slice):
        text = f"{'' if key.start is None else key.start}:{'' if key.stop is None else key.stop}"
        return text if key.step is None else f"{text}:{key.step}"
    return "..." if key is Ellipsis else str(key)
