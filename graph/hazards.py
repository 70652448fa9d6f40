"""Hazards: from what each item reads and writes, in program order, the edges that keep the meaning.

Two accesses of one buffer conflict if their regions overlap and one of them writes; the later item then waits
for the earlier one. A write that covers earlier accesses retires them: whoever conflicts with those conflicts
with it too, so the order stays provable through it.

Buffers that are only ever used whole are handled by sorting; the others one access at a time, over a grid of
what is live: a hierarchical hash grid (Ericson, Real-Time Collision Detection, 2004, 7.2.1), extended by
residues so that interleaved strides do not meet either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from plait.graph.edges import ORDER, RAW, WAR, WAW, Edges
from plait.graph.region import FULL, Region, covers, is_empty, overlaps

READ = 1
WRITE = 2
UPDATE = 3

# KIND[earlier mode][later mode]
_KIND = tuple(
    tuple(
        (RAW if a & WRITE and b & READ else 0)
        | (WAR if a & READ and b & WRITE else 0)
        | (WAW if a & WRITE and b & WRITE else 0)
        for b in range(4)
    )
    for a in range(4)
)

_Longs = NDArray[np.int64]
_Part = tuple[ArrayLike, ArrayLike, ArrayLike]
_Cell = tuple[tuple[int, int], ...]
_Level = tuple[tuple[int, int], ...]


def derive(
    offsets: ArrayLike,
    buffers: ArrayLike,
    modes: ArrayLike,
    regions: Mapping[int, Region | None] | None = None,
    explicit: Sequence[tuple[int, int]] | NDArray[Any] = (),
) -> Edges:
    """The edges between items, in program order of their accesses.

    Item i makes the accesses ``offsets[i] .. offsets[i + 1] - 1`` (shape (items + 1,)); access a uses buffer
    ``buffers[a]`` (an id >= 0) in mode ``modes[a]`` (READ, WRITE, UPDATE) within ``regions[a]`` (absent or
    None: the whole buffer). ``explicit`` holds pairs (before, after) of kind ORDER; they are taken as they
    are, so only they can close a cycle. All regions of one buffer refer to that buffer's own axes.
    """
    offsets_ = np.asarray(offsets, dtype=np.int64)
    buffers_ = np.asarray(buffers, dtype=np.int64)
    modes_ = np.asarray(modes, dtype=np.uint8)
    if len(buffers_) != len(modes_) or (len(offsets_) and offsets_[-1] != len(buffers_)):
        raise ValueError(f"{len(buffers_)} buffers, {len(modes_)} modes, offsets to {offsets_[-1:]}")
    count = max(len(offsets_) - 1, 0)
    items = np.repeat(np.arange(count, dtype=np.int64), np.diff(offsets_))
    sliced: dict[int, Region] = {a: region for a, region in (regions or {}).items() if region is not None}

    parts: list[_Part] = []
    if sliced:
        mask = np.zeros(int(buffers_.max()) + 1, dtype=np.bool_)
        mask[buffers_[np.fromiter(sliced, dtype=np.int64)]] = True
        piecewise = mask[buffers_]
        parts.append(_piecewise(np.flatnonzero(piecewise), items, buffers_, modes_, sliced))
        whole = ~piecewise
        parts.extend(_whole(items[whole], buffers_[whole], modes_[whole]))
    else:
        parts.extend(_whole(items, buffers_, modes_))
    if len(explicit):
        pairs = np.asarray(explicit, dtype=np.int64).reshape(-1, 2)
        parts.append((pairs[:, 0], pairs[:, 1], np.full(len(pairs), ORDER, dtype=np.uint8)))
    source, target, kinds = (
        np.concatenate([np.asarray(part[i], dtype=dtype) for part in parts] or [np.empty(0, dtype)])
        for i, dtype in enumerate((np.int64, np.int64, np.uint8))
    )
    return Edges.of(count, source, target, kinds)


def _whole(items: _Longs, buffers: _Longs, modes: NDArray[np.uint8]) -> Iterator[_Part]:
    """The edges of buffers that are only used whole: each access meets the last write before it, each write
    also the reads since the last write."""
    if not len(items):
        return
    order = np.argsort(buffers, kind="stable")
    item, buffer, mode = items[order], buffers[order], modes[order]
    first = np.concatenate(([True], (buffer[1:] != buffer[:-1]) | (item[1:] != item[:-1])))
    if not first.all():  # an item's several accesses of one buffer are one
        heads = np.flatnonzero(first)
        item, buffer, mode = item[heads], buffer[heads], np.bitwise_or.reduceat(mode, heads)
    place = np.arange(len(item))
    writes = (mode & WRITE) != 0
    kind = np.array(_KIND, dtype=np.uint8)

    latest = np.maximum.accumulate(np.where(writes, place, -1))
    before = np.concatenate(([-1], latest[:-1]))
    at = np.flatnonzero((before >= 0) & (buffer[before] == buffer))
    yield item[before[at]], item[at], kind[mode[before[at]], mode[at]]

    soonest = np.minimum.accumulate(np.where(writes, place, len(place))[::-1])[::-1]
    after = np.minimum(soonest, len(place) - 1)
    at = np.flatnonzero(~writes & (soonest < len(place)) & (buffer[after] == buffer))
    yield item[at], item[after[at]], kind[mode[at], mode[after[at]]]


def _piecewise(
    accesses: _Longs,
    items: _Longs,
    buffers: _Longs,
    modes: NDArray[np.uint8],
    sliced: Mapping[int, Region],
) -> _Part:
    """The edges of buffers that are used in slices: each access against what is live of its buffer."""
    source: list[int] = []
    target: list[int] = []
    kinds: list[int] = []
    order = accesses[np.argsort(buffers[accesses], kind="stable")]
    bounds = np.flatnonzero(np.diff(buffers[order])) + 1
    for group in np.split(order, bounds):
        chosen = [sliced.get(access) for access in group.tolist()]
        rank = max((len(region) for region in chosen if region is not None), default=0)
        live = _LiveSet(source, target, kinds)
        for item, mode, region in zip(items[group].tolist(), modes[group].tolist(), chosen, strict=True):
            if is_empty(region):
                continue
            padded = (region or ()) + (FULL,) * (rank - len(region or ()))
            live.use(item, mode, padded)
    return source, target, kinds


class _Slot:
    """The live accesses of one region of one buffer: (item, mode) each."""

    __slots__ = ("region", "users", "writes")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users: list[tuple[int, int]] = []
        self.writes = False


class _Grid:
    """The slots of one level: regions whose size (and step) per axis is of one class.

    A cell along an axis is as long as the longest extent of the class, so a region lies in at most two.
    """

    __slots__ = ("cells", "level", "slots", "written")

    def __init__(self, level: _Level) -> None:
        self.level = level
        self.written = False  # whether any slot was ever written: reads skip the grids that reads alone made
        self.slots: dict[Region, _Slot] = {}
        self.cells: dict[_Cell, dict[Region, _Slot]] = {}

    def own(self, region: Region) -> Iterable[_Cell]:
        """The cells where a region of this level is registered."""
        return product(
            *[
                [(cell, start % step) for cell in range(start >> bits, (stop - 1 >> bits) + 1)]
                for (start, stop, _), (bits, step) in zip(region, self.level, strict=True)
            ]
        )

    def add(self, slot: _Slot) -> None:
        self.slots[slot.region] = slot
        for cell in self.own(slot.region):
            self.cells.setdefault(cell, {})[slot.region] = slot

    def drop(self, slot: _Slot) -> None:
        del self.slots[slot.region]
        for cell in self.own(slot.region):
            held = self.cells[cell]
            del held[slot.region]
            if not held:
                del self.cells[cell]

    def near(self, region: Region) -> Iterable[_Slot]:
        """Every slot that may overlap the region, each once: by cell or all of them, whichever is fewer."""
        spans: list[tuple[range, range]] = []
        total, limit = 1, len(self.slots)
        for (start, stop, stride), (bits, step) in zip(region, self.level, strict=True):
            common = gcd(stride, step) if stop - start > 1 else step
            residues = range(start % common, step, common)
            if stride == 1 and stop - start < step:  # a short run: only the residues that it holds
                residues = range(start, stop)
            cells = range(start >> bits, (stop - 1 >> bits) + 1)
            spans.append((cells, residues))
            total *= len(cells) * len(residues)
            if total > limit:
                return list(self.slots.values())
        found: dict[Region, _Slot] = {}
        axes = [
            [(cell, residue % step) for cell in cells for residue in residues]
            for (cells, residues), (_, step) in zip(spans, self.level, strict=True)
        ]
        for key in product(*axes):
            held = self.cells.get(key)
            if held:
                found.update(held)
        return list(found.values())


class _LiveSet:
    """What is live of one buffer; the edges that are found go to three flat lists."""

    __slots__ = ("grids", "kinds", "source", "target")

    def __init__(self, source: list[int], target: list[int], kinds: list[int]) -> None:
        self.grids: dict[_Level, _Grid] = {}
        self.source, self.target, self.kinds = source, target, kinds

    def use(self, item: int, mode: int, region: Region) -> None:
        """Record an access: add its edges from what is live, retire what it covers, and make it live."""
        writes = mode & WRITE
        level = tuple([((stop - start - 1).bit_length(), step) for start, stop, step in region])
        retired: list[tuple[_Grid, _Slot]] = []
        for grid in self.grids.values():
            if not writes and not grid.written:
                continue
            for slot in grid.near(region):
                if not (writes or slot.writes) or not overlaps(slot.region, region):
                    continue
                for other, earlier in slot.users:
                    kind = _KIND[earlier][mode]
                    if kind and other != item:
                        self.source.append(other)
                        self.target.append(item)
                        self.kinds.append(kind)
                if writes and covers(region, slot.region):
                    retired.append((grid, slot))
        for grid, slot in retired:
            if slot.region == region:
                slot.users.clear()
                slot.writes = False
            else:
                grid.drop(slot)
                if not grid.slots:
                    del self.grids[grid.level]
        home = self.grids.get(level)
        if home is None:
            home = self.grids[level] = _Grid(level)
        own = home.slots.get(region)
        if own is None:
            own = _Slot(region)
            home.add(own)
        if (item, mode) not in own.users[-1:]:
            own.users.append((item, mode))
        if writes:
            own.writes = home.written = True
