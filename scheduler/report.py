"""What a finished run says about itself: time against bounds, streams and how busy, critical path, memory, advice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from plait.graph.analysis import critical_path
from plait.scheduler.seeing.advice import Advice, advise
from plait.scheduler.seeing.blame import blame, by_cause
from plait.scheduler.seeing.chrome import memory_levels
from plait.scheduler.seeing.units import format_bytes, format_seconds, kind_of
from plait.scheduler.seeing.waits import CAUSES, Waits, find_waits, merged
from plait.scheduler.trace import Trace

__all__ = ["Report", "StreamUse", "build_report", "format_bytes", "format_seconds"]


@dataclass(frozen=True)
class StreamUse:
    """One stream's share of a run. The seconds add up to the makespan.

    ``busy_s`` in items, ``wait_s`` until the item it would run next was ready, ``memory_s`` and ``limit_s`` while that
    item was held back, ``host_s`` while it could have started and did not, ``idle_s`` after its last item.
    """

    name: str
    items: int
    busy_s: float
    busy_fraction: float
    wait_s: float = 0.0
    memory_s: float = 0.0
    limit_s: float = 0.0
    host_s: float = 0.0
    idle_s: float = 0.0


@dataclass(frozen=True)
class Report:
    """Measured figures of one run; seconds and bytes. ``str(report)`` is a short summary.

    ``critical_path`` names the longest chain of dependent items by their measured times, ``critical_items_s`` their
    times, ``critical_path_s`` the sum. ``bounds`` are times that no schedule of these item times beats: that chain,
    and for each kind of stream the work over the streams that can run side by side (of the host's compute streams no
    more than there are cores, since they share a thread for each; a stream whose item waits for a run of its own lends
    its thread, so as many as were seen at once count too); ``bound_s`` is the largest. ``copies_hidden`` is the part of
    copy time during which some compute item ran, None without copies. ``peak_bytes`` counts the arrays that the run
    held at once, and ``peak_holders`` names the largest of them then. ``overhead_s`` is what streams lost between an
    item that was ready and its start, summed over streams. ``spent`` says what each moment went to (seconds by cause,
    most first, which add up to the makespan), and ``advice`` what to do about it, first thing first.
    """

    items: int
    makespan_s: float
    streams: tuple[StreamUse, ...]
    critical_path: tuple[str, ...]
    critical_path_s: float
    bound_s: float
    copies_hidden: float | None
    peak_bytes: int | None
    critical_items_s: tuple[float, ...] = ()
    bounds: tuple[tuple[str, float], ...] = ()
    peak_holders: tuple[tuple[str, int], ...] = ()
    copied_bytes: int = 0
    overhead_s: float = 0.0
    spent: tuple[tuple[str, float], ...] = ()
    advice: tuple[Advice, ...] = ()

    @property
    def over_bound(self) -> float:
        """The makespan as a multiple of the bound: 1 for a schedule that could not be shorter."""
        return self.makespan_s / self.bound_s if self.bound_s else 1.0

    def __str__(self) -> str:
        bound = f"{self.over_bound:.2f} times the bound of {format_seconds(self.bound_s)}"
        lines = [f"{self.items} items in {format_seconds(self.makespan_s)}, {bound}"]
        for use in self.streams:
            waits = (("waits", use.wait_s), ("held back", use.memory_s + use.limit_s), ("late", use.host_s))
            more = "".join(f", {word} {format_seconds(each)}" for word, each in waits if each > 0.005 * self.makespan_s)
            busy = f"busy {format_seconds(use.busy_s)} ({use.busy_fraction:.0%})"
            lines.append(f"  {use.name:<18} {use.items:6} items, {busy}{more}")
        if self.copies_hidden is not None:
            lines.append(f"  copies behind compute: {self.copies_hidden:.0%}")
        path = list(self.critical_path)
        shown = " -> ".join([*path[:4], "…", *path[-2:]] if len(path) > 7 else path)
        lines.append(f"  critical path: {format_seconds(self.critical_path_s)}, {len(path)} items: {shown}")
        if self.peak_bytes is not None:
            holders = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in self.peak_holders[:3])
            lines.append(f"  peak memory: {format_bytes(self.peak_bytes)}{f': {holders}' if holders else ''}")
        if self.spent:
            lines.append("  spent on: " + ", ".join(f"{cause} {format_seconds(each)}" for cause, each in self.spent))
        lines += [f"  {number}. {advice}" for number, advice in enumerate(self.advice, 1)]
        return "\n".join(lines)


def build_report(trace: Trace) -> Report:
    """Figures of a traced run."""
    records = trace.records
    waits = find_waits(trace)
    cost = np.zeros(len(trace.names))
    cost[records["item"]] = (records["end_ns"] - records["start_ns"]) / 1e9
    length, path = critical_path(trace.edges, cost) if trace.edges is not None and len(cost) else (0.0, [])
    ran = set(records["item"].tolist())
    path = [index for index in path if index in ran]
    bounds = (("critical path", float(length)), *_work_bounds(trace))
    peak, holders = _peak(trace)
    parts = blame(trace, waits)
    return Report(
        items=len(records),
        makespan_s=trace.makespan_ns / 1e9,
        streams=_uses(trace, waits),
        critical_path=tuple(trace.names[index] for index in path),
        critical_path_s=float(length),
        bound_s=max(bound for _, bound in bounds),
        copies_hidden=hidden(records),
        peak_bytes=peak if trace.peak_bytes is None else trace.peak_bytes,
        critical_items_s=tuple(float(cost[index]) for index in path),
        bounds=bounds,
        peak_holders=holders,
        copied_bytes=int(trace.details["nbytes"][records["kind"] == 1].sum()),
        overhead_s=float(waits.spent[:, CAUSES.index("host")].sum()) / 1e9,
        spent=tuple((cause, nanoseconds / 1e9) for cause, nanoseconds in by_cause(parts).items()),
        advice=advise(trace, waits, parts),
    )


def _work_bounds(trace: Trace) -> list[tuple[str, float]]:
    """Per kind of stream, its items' time over its streams that run at once; the trio loop runs any number."""
    spans = (trace.records["end_ns"] - trace.records["start_ns"]) / 1e9
    kinds = [kind_of(name) for name in trace.streams]
    found = []
    for kind in dict.fromkeys(kinds):
        mine = np.array([each == kind for each in kinds], dtype=bool)[trace.records["stream"]]
        if kind != "loop" and mine.any():
            streams = kinds.count(kind)
            if kind == "host/compute" and trace.cores:
                streams = min(streams, max(trace.cores, _most_at_once(trace.records[mine])))
            found.append((kind, float(spans[mine].sum()) / streams))
    return found


def _most_at_once(records: npt.NDArray[np.void]) -> int:
    """How many of these items were running at one time."""
    times = np.concatenate([records["start_ns"], records["end_ns"]])
    steps = np.repeat([1, -1], len(records))
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max(initial=0))


def _uses(trace: Trace, waits: Waits) -> tuple[StreamUse, ...]:
    records = trace.records
    makespan = max(1, trace.makespan_ns)
    found = []
    for index, name in enumerate(trace.streams):
        mine = np.flatnonzero(records["stream"] == index)
        if not len(mine):
            continue
        busy = wait = memory = limit = host = 0
        at = 0
        for record in mine.tolist():
            start, end = int(records["start_ns"][record]), int(records["end_ns"][record])
            if start > at:
                ready = min(max(int(waits.ready[record]), at), start)
                wait += ready - at
                held = start - ready if waits.spent[record, CAUSES.index("memory")] else 0
                full = min(start - ready - held, int(waits.spent[record, CAUSES.index("limit")]))
                memory, limit, host = memory + held, limit + full, host + start - ready - held - full
            busy += max(0, end - max(at, start))
            at = max(at, end)
        idle = max(0, trace.makespan_ns - at)
        seconds = [each / 1e9 for each in (wait, memory, limit, host, idle)]
        found.append(StreamUse(name, len(mine), busy / 1e9, busy / makespan, *seconds))
    return tuple(found)


def _peak(trace: Trace) -> tuple[int, tuple[tuple[str, int], ...]]:
    """The most bytes held at once, and who held most of them then."""
    times, levels = memory_levels(trace)
    if not len(levels):
        return 0, ()
    at = int(np.argmax(levels))
    held, when = trace.held, int(times[at])
    # What begins at this moment counts up to the step that made the peak, and nothing has ended at it yet.
    there = np.flatnonzero((held["start_ns"] <= when) & (held["end_ns"] >= when))
    there = there[np.argsort(-held["nbytes"][there], kind="stable")][:10]
    return int(levels[at]), tuple(
        (trace.holders[holder], int(nbytes)) for holder, nbytes in held[there][["holder", "nbytes"]].tolist()
    )


def hidden(records: npt.NDArray[np.void]) -> float | None:
    """The part of copy time in which some item computed; None without copies."""
    copies, compute = records[records["kind"] == 1], records[records["kind"] == 0]
    total = _union(copies)
    if not total:
        return None
    return (total + _union(compute) - _union(np.concatenate([copies, compute]))) / total


def _union(records: npt.NDArray[np.void]) -> int:
    spans = merged(zip(records["start_ns"].tolist(), records["end_ns"].tolist(), strict=True))
    return sum(high - low for low, high in spans)
