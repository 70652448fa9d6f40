"""The lanes of a timeline as bars: one per item, joined where they would be too narrow to see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plait.scheduler.trace import Trace

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

    Bars nearer than a sixteenth of a pixel are joined, or more while there would be over ``MOST_BARS``.
    """
    span = max(1, trace.makespan_ns)
    resolution = span / width / 16
    while True:
        lanes = [lane for stream in range(len(trace.streams)) if (lane := _lane(trace, stream, categories, resolution))]
        if sum(len(lane.bars) for lane in lanes) <= MOST_BARS:
            break
        resolution *= 2
    return sorted(lanes, key=lambda lane: (lane.device != "host", lane.device, lane.section))


def _lane(trace: Trace, stream: int, categories: Sequence[str], resolution: float) -> Lane | None:
    records = trace.records[trace.records["stream"] == stream]
    if not len(records):
        return None
    rows: list[list[Bar]] = [[]]
    ends = [0]
    pending: list[Counter[str]] = [Counter()]
    busy, reached = 0, 0
    items, starts, stops = (records[name].tolist() for name in ("item", "start_ns", "end_ns"))
    for item, start, stop in zip(items, starts, stops, strict=True):
        busy += max(0, stop - max(start, reached))
        reached = max(reached, stop)
        row = next((index for index, end in enumerate(ends) if end <= start), -1)
        if row < 0:
            if len(rows) < MOST_ROWS:
                row = len(rows)
                rows.append([])
                ends.append(0)
                pending.append(Counter())
            else:
                row = int(np.argmin(ends))
        mine, last = rows[row], rows[row][-1] if rows[row] else None
        if last is not None and start - last.end < resolution and min(last.end - last.start, stop - start) < resolution:
            pending[row][categories[item]] += stop - start
            longest = item if stop - start > last.end - last.start else last.item
            common = pending[row].most_common(1)[0][0]
            mine[-1] = Bar(last.start, max(stop, last.end), row, last.first, longest, last.count + 1, common)
        else:
            pending[row] = Counter({categories[item]: stop - start})
            mine.append(Bar(start, stop, row, item, item, 1, categories[item]))
        ends[row] = max(ends[row], stop)
    name = trace.streams[stream]
    kinds = np.bincount(records["kind"], minlength=3)
    bars = [bar for row_ in rows for bar in row_]
    return Lane(name, name.partition("/")[0] if "/" in name else "host", int(np.argmax(kinds)), bars, len(rows), busy)
