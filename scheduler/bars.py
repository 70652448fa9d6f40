"""The lanes of a timeline as bars: one per item, joined where they would be too narrow to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from plait.scheduler.trace import Trace

Records = npt.NDArray[Any]
Longs = npt.NDArray[np.int64]

MOST_BARS, MOST_ROWS = 4000, 4
SECTIONS = ("compute", "copies", "async items")


@dataclass(frozen=True, slots=True)
class Bar:
    """From ``start`` to ``end`` (nanoseconds) in the lane's row ``row``: ``count`` items, of which ``first`` came first
    and ``item`` took longest."""

    start: int
    end: int
    row: int
    first: int
    item: int
    count: int
    category: str


@dataclass(frozen=True)
class Lane:
    """One stream: its name, its section (index into ``SECTIONS``), its bars, and the rows that they need."""

    name: str
    device: str
    section: int
    bars: Sequence[Bar]
    rows: int
    busy_ns: int


def build_lanes(trace: Trace, categories: Sequence[str], width: float) -> list[Lane]:
    """The lanes of what ran, by device, copies apart from compute. ``width`` is that of the whole time in pixels.

    Bars narrower and nearer than a sixteenth of a pixel are joined, or more while there would be over ``MOST_BARS``.
    """
    names = list(dict.fromkeys(categories))
    number = {name: index for index, name in enumerate(names)}
    codes = np.array([number[name] for name in categories], dtype=np.int64)
    resolution = max(1, trace.makespan_ns) / width / 16
    streams = [_rows(trace, stream) for stream in range(len(trace.streams))]
    while True:
        bars = [[_joined(row, index, codes, names, resolution) for index, row in enumerate(rows)] for rows in streams]
        if sum(len(row) for rows in bars for row in rows) <= MOST_BARS:
            break
        resolution *= 2
    lanes = [_lane(trace, stream, rows) for stream, rows in enumerate(bars) if rows]
    return sorted(lanes, key=lambda lane: (lane.device != "host", lane.device, lane.section))


def _rows(trace: Trace, stream: int) -> list[Records]:
    """A stream's records in as many rows as it takes, up to ``MOST_ROWS``, that none overlaps another of its row."""
    records = trace.records[trace.records["stream"] == stream]
    if not len(records):
        return []
    if bool((records["end_ns"][:-1] <= records["start_ns"][1:]).all()):
        return [records]
    ends: list[int] = []
    chosen = []
    for start, stop in zip(records["start_ns"].tolist(), records["end_ns"].tolist(), strict=True):
        row = next((index for index, end in enumerate(ends) if end <= start), len(ends))
        if row == len(ends) == MOST_ROWS:
            row = ends.index(min(ends))
        if row == len(ends):
            ends.append(0)
        ends[row] = max(ends[row], stop)
        chosen.append(row)
    return [records[np.array(chosen) == row] for row in range(len(ends))]


def _joined(records: Records, row: int, codes: Longs, names: Sequence[str], resolution: float) -> list[Bar]:
    """The bars of a row. Narrow neighbours share one, of at most sixteen times the resolution: colours still show."""
    start, end, item = (records[name].astype(np.int64) for name in ("start_ns", "end_ns", "item"))
    took = end - start
    narrow = took < resolution
    apart = (start[1:] - end[:-1] >= resolution) | ~narrow[1:] | ~narrow[:-1]
    apart |= start[1:] // (16 * resolution) != start[:-1] // (16 * resolution)
    first = np.flatnonzero(np.concatenate(([True], apart)))
    bar = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(start))))
    last = np.append(first[1:], len(start)) - 1
    longest = item[np.lexsort((took, bar))][last]
    shares, place = np.unique(bar * len(names) + codes[item], return_inverse=True)
    weights = np.bincount(place.reshape(-1), weights=took)
    by = np.lexsort((weights, shares // len(names)))
    share_bar = shares[by] // len(names)
    main = (shares[by] % len(names))[np.searchsorted(share_bar, np.arange(len(first)), side="right") - 1]
    stop = np.maximum.reduceat(end, first)
    return [
        Bar(begin, until, row, opening, most, count, names[code])
        for begin, until, opening, most, count, code in zip(
            start[first].tolist(),
            stop.tolist(),
            item[first].tolist(),
            longest.tolist(),
            (last - first + 1).tolist(),
            main.tolist(),
            strict=True,
        )
    ]


def _lane(trace: Trace, stream: int, rows: list[list[Bar]]) -> Lane:
    records = trace.records[trace.records["stream"] == stream]
    end = np.maximum.accumulate(records["end_ns"])
    begin = np.maximum(records["start_ns"], np.concatenate(([0], end[:-1])))
    busy = int(np.maximum(0, records["end_ns"] - begin).sum())
    name = trace.streams[stream]
    section = int(np.argmax(np.bincount(records["kind"], minlength=3)))
    bars = [bar for row in rows for bar in row]
    return Lane(name, name.partition("/")[0] if "/" in name else "host", section, bars, len(rows), busy)
