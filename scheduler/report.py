"""What a finished run says about itself: time against bounds, streams and how busy, critical path, peak memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from plait.graph import BUFFER
from plait.graph.analysis import critical_path
from plait.graph.edges import Edges

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan
    from plait.scheduler.trace import Trace


@dataclass(frozen=True)
class StreamUse:
    """One stream's share of a run."""

    name: str
    items: int
    busy_s: float
    busy_fraction: float


@dataclass(frozen=True)
class Report:
    """Measured figures of one run; seconds and bytes. ``str(report)`` is a short summary.

    ``critical_path`` names the longest chain of dependent items by their measured times, ``critical_path_s`` its
    length; ``bound_s`` is the larger of that and work over streams, so no schedule of these item times beats it.
    ``copies_hidden`` is the part of copy time during which some compute item ran, None without copies.
    ``peak_bytes`` counts the NumPy arrays that the run held at once, replayed from the trace.
    """

    items: int
    makespan_s: float
    streams: tuple[StreamUse, ...]
    critical_path: tuple[str, ...]
    critical_path_s: float
    bound_s: float
    copies_hidden: float | None
    peak_bytes: int | None

    @property
    def over_bound(self) -> float:
        """The makespan as a multiple of the bound: 1 for a schedule that could not be shorter."""
        return self.makespan_s / self.bound_s if self.bound_s else 1.0

    def __str__(self) -> str:
        bound = f"{self.over_bound:.2f} times the bound of {format_seconds(self.bound_s)}"
        lines = [f"{self.items} items in {format_seconds(self.makespan_s)}, {bound}"]
        lines += [
            f"  {use.name:<18} {use.items:6} items, busy {format_seconds(use.busy_s)} ({use.busy_fraction:.0%})"
            for use in self.streams
        ]
        if self.copies_hidden is not None:
            lines.append(f"  copies behind compute: {self.copies_hidden:.0%}")
        path = list(self.critical_path)
        shown = " -> ".join([*path[:4], "…", *path[-2:]] if len(path) > 7 else path)
        lines.append(f"  critical path: {format_seconds(self.critical_path_s)}, {len(path)} items: {shown}")
        if self.peak_bytes is not None:
            lines.append(f"  peak memory: {format_bytes(self.peak_bytes)}")
        return "\n".join(lines)


def build_report(plan: Plan, trace: Trace, peak_bytes: int | None) -> Report:
    """Figures of a finished, traced run."""
    records = trace.records
    spans = records["end_ns"] - records["start_ns"]
    makespan = max(1, trace.makespan_ns)
    uses = []
    for index, name in enumerate(trace.streams):
        mine = records["stream"] == index
        if mine.any():
            busy = _union(records["start_ns"][mine], records["end_ns"][mine])
            uses.append(StreamUse(name, int(mine.sum()), busy / 1e9, busy / makespan))
    cost = np.zeros(len(plan.work))
    cost[records["item"]] = spans / 1e9
    length, path = _critical(plan.edges, cost)
    compute = records["kind"] == 0
    work = float(spans[compute].sum()) / 1e9 / max(1, plan.streams[0])
    return Report(
        items=len(records),
        makespan_s=trace.makespan_ns / 1e9,
        streams=tuple(uses),
        critical_path=tuple(trace.names[index] for index in path),
        critical_path_s=length,
        bound_s=max(length, work),
        copies_hidden=_hidden(records),
        peak_bytes=peak_bytes,
    )


def peak_bytes(plan: Plan, finished: list[int], sizes: list[int]) -> int:
    """The most bytes that the run's arrays held at once, replayed from the stamps by position and sizes by slot.

    A slot counts from the end of the first item that touches it (a run's own buffers: from the start) to the end of
    the last one; a slot that the run keeps counts to the end.
    """
    size = np.array(sizes, dtype=np.int64)
    end = np.array(finished, dtype=np.int64)
    offsets, slots = plan.accesses
    ends = np.repeat(end, np.diff(offsets))
    ran = ends > 0
    slots, ends = slots[ran], ends[ran]
    first = np.full(len(size), np.iinfo(np.int64).max)
    last = np.zeros(len(size), dtype=np.int64)
    np.minimum.at(first, slots, ends)
    np.maximum.at(last, slots, ends)
    for buffer in plan.program.declared:
        if buffer.kind == BUFFER:
            first[buffer.index] = 0
    last[plan.keep] = np.iinfo(np.int64).max
    held = np.flatnonzero(size)
    times = np.concatenate([first[held], last[held]])
    deltas = np.concatenate([size[held], -size[held]])
    # Of one moment, what ends an item's inputs and begins its result: the result is there first.
    by = np.lexsort((-deltas, times))
    return int(np.cumsum(deltas[by]).max(initial=0))


def _critical(edges: Edges, cost: npt.NDArray[np.float64]) -> tuple[float, list[int]]:
    if not len(cost):
        return 0.0, []
    length, path = critical_path(edges, cost)
    return float(length), [int(index) for index in path]


def _merged(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for left, right in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if merged and left <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(right, merged[-1][1]))
        else:
            merged.append((left, right))
    return merged


def _union(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> int:
    return sum(right - left for left, right in _merged(start, end))


def _hidden(records: npt.NDArray[np.void]) -> float | None:
    copies, compute = records[records["kind"] == 1], records[records["kind"] == 0]
    total = _union(copies["start_ns"], copies["end_ns"])
    if not total:
        return None
    both = np.concatenate([copies, compute])
    return (total + _union(compute["start_ns"], compute["end_ns"]) - _union(both["start_ns"], both["end_ns"])) / total


def format_seconds(value: float) -> str:
    """Three figures and a unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def format_bytes(value: int) -> str:
    """Three figures and a binary unit."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} B"
