"""Why an item of a finished run started when it did: what it waited for, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from plait.graph.analysis import critical_path

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan
    from plait.scheduler.trace import Trace

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Starts:
    """Per item of the plan's ``work`` (int64, shape (items,)), in nanoseconds since the run began.

    ``start`` and ``end``, -1 if it did not run; ``ready``: when the last of those that it waits for ended, 0 if there
    are none; ``cause``: that last one, or -1; ``before``: when what its stream ran before had ended. ``critical`` are
    the items of the longest chain of dependent items by their measured times, as the report has it.
    """

    start: Longs
    end: Longs
    ready: Longs
    cause: Longs
    before: Longs
    critical: list[int]

    def queued_ns(self, item: int) -> int:
        """How long the item was ready before it started."""
        return max(0, int(self.start[item] - self.ready[item]))


def find_starts(plan: Plan, trace: Trace) -> Starts:
    """Follow every wait of a traced run to what it was for."""
    count, records, edges = len(plan.work), trace.records, plan.edges
    start, end, cause = (np.full(count, -1, dtype=np.int64) for _ in range(3))
    start[records["item"]] = records["start_ns"]
    end[records["item"]] = records["end_ns"]
    ready = np.zeros(count, dtype=np.int64)
    np.maximum.at(ready, edges.target, end[edges.source])
    last = np.argsort(end[edges.source], kind="stable")  # of an index assigned twice, the last value stays
    cause[edges.target[last]] = edges.source[last]
    cause[(cause >= 0) & (end[cause] < 0)] = -1
    before = np.zeros(count, dtype=np.int64)
    for stream in range(len(trace.streams)):
        mine = records[records["stream"] == stream]  # in order of start
        ends = np.maximum.accumulate(mine["end_ns"]) if len(mine) else mine["end_ns"]
        before[mine["item"][1:]] = ends[:-1]
    took = np.where(start >= 0, end - start, 0).astype(np.float64)
    path = critical_path(edges, took)[1] if count else []
    return Starts(start, end, ready, cause, before, path)
