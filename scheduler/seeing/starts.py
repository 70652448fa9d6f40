"""Why each item of a finished run started when it did, by item: what a timeline tells of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from plait.graph import Edges
from plait.graph.analysis import critical_path
from plait.scheduler.seeing.waits import CAUSES, find_waits
from plait.scheduler.trace import Trace

Longs = npt.NDArray[np.int64]

_WORDS = {
    "memory": "until there was memory for it",
    "limit": "for room in its group",
    "stream": "for its stream",
    "host": "for the host to start it",
}


@dataclass(frozen=True, eq=False)
class Starts:
    """Per item (int64, shape (items,)), in nanoseconds since the run began.

    ``start`` and ``end``, -1 if it did not run; ``ready``: when the last of those that it waits for ended, 0 if there
    are none; ``cause``: that last one, or -1; ``spent``, shape (items, causes): the time between ready and start by
    ``plait.scheduler.seeing.waits.CAUSES``. ``critical`` are the items of the longest chain of dependent items by their
    measured times, as the report has it.
    """

    start: Longs
    end: Longs
    ready: Longs
    cause: Longs
    spent: Longs
    critical: list[int]

    def queued_ns(self, item: int) -> int:
        """How long the item was ready before it started."""
        return max(0, int(self.start[item] - self.ready[item]))

    def held_up(self, item: int) -> str:
        """In words, what most of that time went to."""
        return _WORDS[CAUSES[int(self.spent[item].argmax())]]


def find_starts(trace: Trace) -> Starts:
    """What each item of a traced run waited for, and how long."""
    count, records = len(trace.names), trace.records
    waits = find_waits(trace)
    items = records["item"]
    start, end, ready, cause = (np.full(count, fill, dtype=np.int64) for fill in (-1, -1, 0, -1))
    spent = np.zeros((count, len(CAUSES)), dtype=np.int64)
    start[items], end[items] = records["start_ns"], records["end_ns"]
    ready[items], spent[items] = waits.ready, waits.spent
    blocked = waits.blocker >= 0
    cause[items[blocked]] = items[waits.blocker[blocked]]
    took = np.where(start >= 0, end - start, 0).astype(np.float64)
    edges = trace.edges if trace.edges is not None else Edges.of(count, [], [])
    return Starts(start, end, ready, cause, spent, critical_path(edges, took)[1] if count else [])
