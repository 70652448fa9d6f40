"""What the tests here share: traced runs of real programs, and traces made by hand or at random."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import plait
import trio
from hypothesis import strategies as st
from plait import Graph, Trace, open_scheduler
from plait.graph import Edges
from plait.scheduler.trace import DETAIL, HELD, RECORD, UNKNOWN, Limit

STREAMS = ("host/compute:0", "host/compute:1", "host/copy:0", "cuda:0/compute:0", "loop")
KIND = (0, 0, 1, 0, 2)


def traced(graph: Graph, *, streams: int = 2, inputs: dict[str, Any] | None = None, **options: Any) -> plait.Run:
    """A run of ``graph`` that has ended."""

    async def main() -> plait.Run:
        async with open_scheduler(devices="host", streams=streams, **options) as scheduler:
            run = scheduler.start(graph, inputs or {})
            await run
            return run

    return trio.run(main)


def calm(graph: Graph, **options: Any) -> Trace:
    """The trace of the shortest of some runs: the one that other processes disturbed least."""
    return min((traced(graph, **options).trace for _ in range(4)), key=lambda trace: trace.makespan_ns)


def spin(*_: Any, seconds: float = 500e-6) -> int:
    """Hold the interpreter so long."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass
    return 1


def made(
    rows: Sequence[tuple[int, int, int, int]],
    waits: Sequence[tuple[int, int]] = (),
    *,
    stalls: Sequence[tuple[int, int, int]] = (),
    limits: Sequence[Limit] = (),
    held: Sequence[tuple[int, int, int]] = (),
    makespan: int | None = None,
    cores: int = 4,
) -> Trace:
    """A trace of ``(item, stream, start, end)`` in nanoseconds, with ``waits`` between items."""
    rows = sorted(rows, key=lambda row: row[2])
    count = 1 + max((row[0] for row in rows), default=-1)
    records = np.array([(item, at, KIND[at], start, end) for item, at, start, end in rows], dtype=RECORD)
    details = np.array([(UNKNOWN, start, 0) for _, _, start, _ in rows], dtype=DETAIL)
    return Trace(
        records,
        STREAMS,
        "host",
        tuple(f"i{k}" for k in range(count)),
        max((row[3] for row in rows), default=0) if makespan is None else makespan,
        edges=Edges.of(count, [before for before, _ in waits], [after for _, after in waits]),
        details=details,
        held=np.array([(*each, k) for k, each in enumerate(held)], dtype=HELD),
        holders=tuple(f"b{k}" for k in range(len(held))),
        limits=tuple(limits),
        stalls=tuple(stalls),
        cores=cores,
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A run as some scheduler might have laid it out: streams in order, waits kept, delays anywhere."""
    count = draw(st.integers(0, 9))
    free, ends, used = [0] * len(STREAMS), [0] * count, set()
    rows, waits = [], []
    nanoseconds = st.integers(0, 60).map(lambda each: each * 1000)
    for item in range(count):
        before = draw(st.sets(st.integers(0, item - 1), max_size=3)) if item else set()
        waits += [(each, item) for each in before]
        stream = draw(st.integers(0, len(STREAMS) - 1))
        ready = max((ends[each] for each in before), default=0)
        start = ready if STREAMS[stream] == "loop" else max(ready, free[stream])
        start += draw(nanoseconds)
        end = start + 1 + draw(nanoseconds)
        while end in used or start in used:  # of two at one moment either would be right
            start, end = start + 1, end + 1
        used |= {start, end}
        ends[item], free[stream] = end, max(free[stream], end)
        rows.append((item, stream, start, end))
    last = max(ends, default=0)
    span = st.tuples(st.integers(0, last), st.integers(0, last)).map(sorted)
    stalls = [(low, high, 1 << 20) for low, high in draw(st.lists(span, max_size=3)) if high > low]
    held = [(low, high, draw(st.integers(1, 1 << 20))) for low, high in draw(st.lists(span, max_size=6))]
    cores = draw(st.integers(0, 3))
    return made(rows, waits, stalls=stalls, held=held, makespan=last + draw(nanoseconds), cores=cores)
