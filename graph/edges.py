"""Edges: the arrows of an execution graph as flat arrays, and the orders that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RAW = 1
WAR = 2
WAW = 4
ORDER = 8
WORDS: dict[int, str] = {
    RAW: "read-after-write",
    WAR: "write-after-read",
    WAW: "write-after-write",
    ORDER: "order",
}

Ints = NDArray[np.int32]
Kinds = NDArray[np.uint8]


class CycleFound(ValueError):
    """The edges hold a cycle, so there is no order; ``items`` are its nodes in order."""

    def __init__(self, items: list[int]) -> None:
        super().__init__("the graph has a cycle: " + " -> ".join(map(str, [*items, *items[:1]])))
        self.items = items


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The edges of a graph with nodes ``0 .. count-1``: unique pairs, sorted by (target, source).

    ``source`` and ``target`` are int32, ``kinds`` uint8 bit flags, all of shape (edges,).
    """

    count: int
    source: Ints
    target: Ints
    kinds: Kinds

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(cls, count: int, source: ArrayLike, target: ArrayLike, kinds: ArrayLike = ORDER) -> Edges:
        """From pairs in any order, repeated or not; the kinds of a repeated pair are merged."""
        from_ = np.asarray(source, dtype=np.int64).reshape(-1)
        to = np.asarray(target, dtype=np.int64).reshape(-1)
        flags = np.broadcast_to(np.asarray(kinds, dtype=np.uint8), from_.shape)
        if len(from_) and (min(from_.min(), to.min()) < 0 or max(from_.max(), to.max()) >= count):
            raise ValueError(f"an edge names a node outside 0..{count - 1}")
        key = (to << 32) | from_
        if len(key) > 1 and not bool((key[1:] > key[:-1]).all()):
            order = np.argsort(key, kind="stable")
            key, flags = key[order], flags[order]
            first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
            key, flags = key[first], np.bitwise_or.reduceat(flags, first)
        return cls(
            count,
            (key & 0xFFFFFFFF).astype(np.int32),
            (key >> 32).astype(np.int32),
            np.ascontiguousarray(flags),
        )

    def keep(self, mask: NDArray[np.bool_]) -> Edges:
        """The edges where ``mask`` (shape (edges,)) is true."""
        return Edges(self.count, self.source[mask], self.target[mask], self.kinds[mask])

    def in_degree(self) -> NDArray[np.int64]:
        """Shape (count,)."""
        return np.bincount(self.target, minlength=self.count).astype(np.int64)

    def out_degree(self) -> NDArray[np.int64]:
        """Shape (count,)."""
        return np.bincount(self.source, minlength=self.count).astype(np.int64)

    def predecessors(self) -> tuple[NDArray[np.int64], Ints]:
        """CSR: the predecessors of node i are ``indices[offsets[i]:offsets[i + 1]]``, ascending."""
        return _offsets(self.in_degree()), self.source

    def successors(self) -> tuple[NDArray[np.int64], Ints]:
        """CSR: the successors of node i are ``indices[offsets[i]:offsets[i + 1]]``, ascending."""
        order = np.argsort(self.source, kind="stable")
        return _offsets(self.out_degree()), self.target[order]

    def sources(self) -> NDArray[np.int64]:
        """The nodes that no edge enters, ascending."""
        return np.flatnonzero(self.in_degree() == 0)

    def sinks(self) -> NDArray[np.int64]:
        """The nodes that no edge leaves, ascending."""
        return np.flatnonzero(self.out_degree() == 0)


def words(kinds: int) -> tuple[str, ...]:
    """The names of the flags in ``kinds``."""
    return tuple(word for flag, word in WORDS.items() if kinds & flag)


def topological_order(edges: Edges) -> Ints:
    """An order in which every source precedes its targets; program order where the edges follow it.

    Otherwise Kahn's algorithm (CACM 1962), first come first served. Raises CycleFound.
    """
    if bool((edges.source < edges.target).all()):
        return np.arange(edges.count, dtype=np.int32)
    offsets, indices = (array.tolist() for array in edges.successors())
    waiting = edges.in_degree().tolist()
    order: list[int] = edges.sources().tolist()
    for node in order:  # grows while it is walked
        for successor in indices[offsets[node] : offsets[node + 1]]:
            waiting[successor] -= 1
            if not waiting[successor]:
                order.append(successor)
    if len(order) < edges.count:
        cycle = find_cycle(edges.count, edges.source, edges.target)
        raise CycleFound(cycle or [])
    return np.array(order, dtype=np.int32)


def in_topological_order(edges: Edges) -> tuple[list[int], list[int], NDArray[np.int64] | slice]:
    """``(source, target, permutation)``: the edges as lists, sorted so that all edges into a node come before
    any edge out of it. Walked backwards, all edges out of a node come before any edge into it."""
    if bool((edges.source < edges.target).all()):
        return edges.source.tolist(), edges.target.tolist(), slice(None)
    place = np.empty(edges.count, dtype=np.int64)
    place[topological_order(edges)] = np.arange(edges.count)
    permutation = np.argsort(place[edges.target], kind="stable")
    return edges.source[permutation].tolist(), edges.target[permutation].tolist(), permutation


def levels(edges: Edges) -> Ints:
    """The number of edges on the longest path that ends at each node: int32, shape (count,). Raises
    CycleFound."""
    level = [0] * edges.count
    source, target, _ = in_topological_order(edges)
    for before, after in zip(source, target, strict=True):
        deeper = level[before] + 1
        if deeper > level[after]:  # noqa: PLR1730  (max() is three times as slow here)
            level[after] = deeper
    return np.array(level, dtype=np.int32)


def find_cycle(count: int, source: Iterable[Any], target: Iterable[Any]) -> list[int] | None:
    """The nodes of one cycle, each with an edge to the next and the last to the first; None if there is
    none."""
    edges = Edges.of(count, _array(source), _array(target))
    offsets, indices = (array.tolist() for array in edges.successors())
    waiting = edges.in_degree().tolist()
    ready: list[int] = edges.sources().tolist()
    for node in ready:
        for successor in indices[offsets[node] : offsets[node + 1]]:
            waiting[successor] -= 1
            if not waiting[successor]:
                ready.append(successor)
    if len(ready) == count:
        return None
    # What is left all has a predecessor among what is left: walk back until a node repeats.
    before = {
        after: node for node, after in zip(edges.source.tolist(), edges.target.tolist(), strict=True) if waiting[node]
    }
    node = next(node for node in range(count) if waiting[node])
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = before[node]
    cycle = path[seen[node] :][::-1]
    smallest = cycle.index(min(cycle))
    return cycle[smallest:] + cycle[:smallest]


def _offsets(degree: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(degree))).astype(np.int64)


def _array(values: Iterable[Any]) -> NDArray[np.int64]:
    if isinstance(values, np.ndarray):
        return values.astype(np.int64)
    return np.fromiter(values, dtype=np.int64)
