"""Why each item of a trace started when it did, from the times of the others: pure functions on flat arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from plait.scheduler.trace import Trace

CAUSES = ("memory", "limit", "stream", "host")
MEMORY, LIMIT, STREAM, HOST = range(4)

Longs = npt.NDArray[np.int64]
Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Waits:
    """Per record of a trace (index in ``records``, -1 for none).

    ``ready`` is when all that the item waited for had ended, ``blocker`` the record that ended last of these,
    ``before`` the record that its stream ran before it. ``spent`` has nanoseconds between ready and start by cause,
    shape (records, 4): held back for memory, for room in a group, until what its stream ran before it had ended, and
    none of these, which is the host's own delay.
    """

    ready: Longs
    blocker: Longs
    before: Longs
    spent: Longs


def find_waits(trace: Trace) -> Waits:
    """What each item waited for, and how long."""
    records = trace.records
    count = len(records)
    start, end = records["start_ns"], records["end_ns"]
    ready, blocker = _ready(trace)
    before = _before(trace)
    free = np.where(before < 0, 0, end[before] if count else 0)
    spent = np.zeros((count, len(CAUSES)), dtype=np.int64)
    late = np.flatnonzero(start > ready)
    full = _full(trace)
    for record in late.tolist() if trace.stalls or full else ():
        low, high = int(ready[record]), int(start[record])
        # An item's own stalls lie between its ready and its start; others may overlap that time too. While it asked for
        # nothing, since others were before it, memory kept it as well: its stream stood still.
        own = [(begin, end) for begin, end, _ in trace.stalls if low <= begin and end <= high]
        if own:
            spent[record, MEMORY] = covered(merged([*own, (min(int(free[record]), high), high)]), low, high)
        if record in full:
            spent[record, LIMIT] = min(covered(full[record], low, high), high - low - int(spent[record, MEMORY]))
    left = start - ready - spent.sum(axis=1)
    spent[:, STREAM] = np.clip(np.minimum(free, start) - ready, 0, left.clip(0))
    spent[:, HOST] = (left - spent[:, STREAM]).clip(0)
    return Waits(ready, blocker, before, spent)


def _ready(trace: Trace) -> tuple[Longs, Longs]:
    """Per record: the end of the last item before it, at least 0, and which record that is."""
    records, edges = trace.records, trace.edges
    count = len(records)
    ready, blocker = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    if edges is None or not len(edges) or not count:
        return ready, blocker
    of_item = np.full(len(trace.names), -1, dtype=np.int64)
    of_item[records["item"]] = np.arange(count)
    source, target = of_item[edges.source], of_item[edges.target]
    both = (source >= 0) & (target >= 0)
    source, target = source[both], target[both]
    ends = records["end_ns"][source]
    by = np.lexsort((ends, target))
    source, target, ends = source[by], target[by], ends[by]
    last = np.flatnonzero(np.append(target[1:] != target[:-1], True)) if len(target) else np.empty(0, np.int64)
    # An item counts as ready no later than it started: clocks of two devices agree to microseconds only.
    ready[target[last]] = np.minimum(ends[last], records["start_ns"][target[last]]).clip(0)
    blocker[target[last]] = source[last]
    return ready, blocker


def _before(trace: Trace) -> Longs:
    """Per record, the one before it on its stream: of those that began earlier, the last to end."""
    before = np.full(len(trace.records), -1, dtype=np.int64)
    latest: dict[int, int] = {}
    ends = trace.records["end_ns"].tolist()
    for record, stream in enumerate(trace.records["stream"].tolist()):
        last = latest.get(stream, -1)
        before[record] = last
        if last < 0 or ends[record] >= ends[last]:
            latest[stream] = record
    return before


def _full(trace: Trace) -> dict[int, Spans]:
    """For each record of a limited group: when the group had no room."""
    found: dict[int, Spans] = {}
    records = trace.records
    for limit in trace.limits:
        mine = np.flatnonzero(np.isin(records["item"], limit.items))
        times = np.concatenate([records["start_ns"][mine], records["end_ns"][mine]])
        steps = np.concatenate([np.ones(len(mine), np.int64), -np.ones(len(mine), np.int64)])
        by = np.lexsort((steps, times))
        times, level = times[by], np.cumsum(steps[by])
        spans = merged(
            (int(times[index]), int(times[index + 1])) for index in np.flatnonzero(level[:-1] >= limit.most).tolist()
        )
        for record in mine.tolist():
            found[record] = merged([*found.get(record, ()), *spans])
    return found


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """The same times as disjoint spans, in order."""
    found: Spans = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        elif high > low:
            found.append((low, high))
    return found


def covered(spans: Spans, low: int, high: int) -> int:
    """How much of ``low`` to ``high`` the disjoint spans cover."""
    return sum(max(0, min(high, right) - max(low, left)) for left, right in spans)
