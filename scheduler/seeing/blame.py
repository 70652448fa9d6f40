"""What every moment of a run went to: the chain of items and waits that ends with the last item, walked backwards.

From the last item to end, each step goes to what that item waited for last: an item that it depends on, or the one
before it in its stream. The spans on the way and the gaps between them cover the whole run, so the parts add up to the
makespan, and to shorten the largest shortens the run. (The critical path of the graph alone would not say that streams,
memory or the host were short.) Miller, Yang, "IPS: an interactive and automatic performance measurement tool for
parallel and distributed programs", ICDCS 1987, walks program activity graphs so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from plait.graph.analysis import critical_path
from plait.scheduler.seeing.waits import LIMIT, MEMORY, Waits
from plait.scheduler.trace import Trace

TINY_NS = 20_000  # an item this short is no longer than what it costs to hand it to another thread

# Causes: items that others depend on; copies; async items; items that another had to wait behind; and what is no item.
CHAIN, COPIES, AWAITS, STREAMS, MEMORY_FULL, GROUP_FULL, HOST_BUSY = (
    "dependencies",
    "copies",
    "awaits",
    "streams",
    "memory",
    "limit",
    "host",
)


@dataclass(frozen=True)
class Part:
    """One step of the chain, latest first: nanoseconds of a record (or of a gap before it, -1) by cause."""

    record: int
    cause: str
    start_ns: int
    end_ns: int


def blame(trace: Trace, waits: Waits) -> list[Part]:
    """The parts of the run, from its end to its begin; their lengths add up to the makespan."""
    records, spent = trace.records, waits.spent
    if not len(records):
        return [Part(-1, HOST_BUSY, 0, trace.makespan_ns)] if trace.makespan_ns > 0 else []
    start, end, kind = records["start_ns"].tolist(), records["end_ns"].tolist(), records["kind"].tolist()
    record = int(np.argmax(records["end_ns"]))
    parts: list[Part] = []
    at, link = trace.makespan_ns, CHAIN
    held: list[str | None] = []  # per part, what a later item on the way was held back by, if anything
    holds: str | None = None
    _add(parts, -1, HOST_BUSY, end[record], at)
    at = min(at, end[record])
    while True:
        cause = link
        if kind[record] == 1:
            cause = COPIES
        elif kind[record] == 2:
            cause = AWAITS
        elif end[record] - start[record] < TINY_NS and trace.streams[records["stream"][record]].startswith("host/"):
            cause = HOST_BUSY
        held += [None] * (len(parts) - len(held))
        _add(parts, record, cause, start[record], at)
        held += [holds] * (len(parts) - len(held))
        at = min(at, start[record])
        ready, before = int(waits.ready[record]), int(waits.before[record])
        free = end[before] if before >= 0 else 0
        latest = min(at, max(ready, free, 0))
        late = MEMORY_FULL if spent[record, MEMORY] else GROUP_FULL if spent[record, LIMIT] else HOST_BUSY
        _add(parts, -1, late, latest, at)
        holds = late if late != HOST_BUSY else holds
        at = latest
        behind = before >= 0 and free > ready
        later = record
        record, link = (before, _waited(spent[record])) if behind else (int(waits.blocker[record]), CHAIN)
        if record < 0 or at <= 0 or record >= later:  # the last: clocks of two devices that disagree
            held += [None] * (len(parts) - len(held))
            parts = _within_chain(trace, parts, held)
            _add(parts, -1, HOST_BUSY, 0, at)
            return parts


def _within_chain(trace: Trace, parts: list[Part], held: list[str | None]) -> list[Part]:
    """No more time went to dependencies than the longest chain of them takes: what is beyond it, earliest first, went
    to what held a later item back, since without that the chains would have run side by side."""
    edges = trace.edges
    chain = sum(part.end_ns - part.start_ns for part in parts if part.cause == CHAIN)
    if edges is None or not any(held):
        return parts
    cost = np.zeros(len(trace.names))
    cost[trace.records["item"]] = trace.records["end_ns"] - trace.records["start_ns"]
    beyond = chain - int(critical_path(edges, cost)[0])
    found = list(parts)
    for index in range(len(parts) - 1, -1, -1):
        part, cause = parts[index], held[index]
        if beyond <= 0:
            break
        if part.cause == CHAIN and cause is not None:
            found[index] = replace(part, cause=cause)
            beyond -= part.end_ns - part.start_ns
    return found


def _waited(spent: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    """What an item waited for that had been ready before its stream was free."""
    most = int(spent.argmax())
    if most == MEMORY and spent[most]:
        return MEMORY_FULL
    return GROUP_FULL if most == LIMIT and spent[most] else STREAMS


def _add(parts: list[Part], record: int, cause: str, low: int, high: int) -> None:
    if high > low:
        parts.append(Part(record, cause, low, high))


def by_cause(parts: list[Part]) -> dict[str, int]:
    """Nanoseconds by cause, most first."""
    total: dict[str, int] = {}
    for part in parts:
        total[part.cause] = total.get(part.cause, 0) + part.end_ns - part.start_ns
    return dict(sorted(total.items(), key=lambda each: -each[1]))
