"""How an item uses a buffer: the wrappers ``read``, ``write``, ``update`` and the named resource ``uses``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from plait.errors import GraphError
from plait.graph.buffer import Access, Buffer, BufferSlice
from plait.graph.hazards import READ, UPDATE, WRITE

BufferOrSlice = TypeVar("BufferOrSlice", Buffer, BufferSlice)


@dataclass(frozen=True, slots=True)
class Uses:
    """A named resource: items that share it do not overlap, except that shared uses may overlap each other."""

    name: str
    shared: bool = False


def _access(target: Buffer | BufferSlice, mode: int, word: str) -> Access:
    if not isinstance(target, Buffer | BufferSlice):
        raise GraphError(f"plait.{word}() takes a buffer or a slice of one, not {type(target).__name__}")
    return Access(target, mode)


def read(target: Buffer | BufferSlice) -> Access:
    """Declare that the item only reads ``target`` (what a bare buffer among the arguments means too)."""
    return _access(target, READ, "read")


def write(target: Buffer | BufferSlice) -> Access:
    """Declare that the item overwrites all of ``target`` in place without reading it."""
    return _access(target, WRITE, "write")


def update(target: Buffer | BufferSlice) -> Access:
    """Declare that the item reads ``target`` and changes it in place."""
    return _access(target, UPDATE, "update")


def uses(name: str, *, shared: bool = False) -> Uses:
    """Name a resource (a disk, a licence, a library that is not thread-safe) that the item uses alone.

    It is a declaration among the arguments; the function does not receive it. Items that use the same name run in
    program order, one at a time; ``shared=True`` lets sharers overlap each other but not an exclusive use.
    """
    if not isinstance(name, str) or not name:
        raise GraphError(f"plait.uses() takes a non-empty name, not {name!r}")
    return Uses(name, shared)
