"""A trace as events of the Chrome trace format: a lane per stream, arrows between streams, counters.

The format is Google's "Trace Event Format": ``X`` a span with ``ts`` and ``dur`` in microseconds, ``s`` and ``f`` the
ends of an arrow, ``C`` a counter, ``M`` a name. Spans of one lane must nest, so items of the trio loop, which overlap,
get as many lanes as they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from plait.scheduler.kinds import KIND_WORDS
from plait.scheduler.seeing.waits import CAUSES, Waits, find_waits
from plait.scheduler.trace import Trace

_STALLS = 10_000  # lanes above the streams' own: memory stalls, and the further lanes of a stream
Event = dict[str, Any]


def chrome_events(trace: Trace) -> list[Event]:
    """All events of a trace, names first."""
    processes: dict[str, int] = {}
    pids = [processes.setdefault(_process(trace, name), len(processes) + 1) for name in trace.streams]
    lanes = _lanes(trace)
    waits = find_waits(trace)
    return [
        *_names(trace, processes, pids, lanes),
        *_spans(trace, pids, lanes, waits),
        *_arrows(trace, pids, lanes),
        *_memory(trace),
        *_queues(trace, pids, waits),
    ]


def _process(trace: Trace, stream: str) -> str:
    return stream.partition("/")[0] if "/" in stream else trace.device


def _lanes(trace: Trace) -> list[int]:
    """Per record, which of its stream's lanes it is drawn in: 0 unless it overlaps the ones before."""
    free: dict[int, list[int]] = {}
    found = []
    records = trace.records
    for stream, start, end in zip(
        records["stream"].tolist(), records["start_ns"].tolist(), records["end_ns"].tolist(), strict=True
    ):
        ends = free.setdefault(stream, [])
        lane = next((index for index, until in enumerate(ends) if until <= start), len(ends))
        if lane == len(ends):
            ends.append(end)
        ends[lane] = end
        found.append(lane)
    return found


def _tid(stream: int, lane: int, streams: int) -> int:
    return stream + lane * streams


def _names(trace: Trace, processes: dict[str, int], pids: list[int], lanes: list[int]) -> Iterator[Event]:
    for name, pid in processes.items():
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    most: dict[int, int] = {}
    for stream, lane in zip(trace.records["stream"].tolist(), lanes, strict=True):
        most[stream] = max(most.get(stream, 0), lane)
    count = len(trace.streams)
    for stream, name in enumerate(trace.streams):
        for lane in range(most.get(stream, 0) + 1):
            tid = _tid(stream, lane, count)
            shown = name if not lane else f"{name} ({lane + 1})"
            yield {"ph": "M", "pid": pids[stream], "tid": tid, "name": "thread_name", "args": {"name": shown}}
            yield {"ph": "M", "pid": pids[stream], "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}
    if trace.stalls:
        tid = _tid(_STALLS, 0, count)
        yield {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": "held back for memory"}}


def _spans(trace: Trace, pids: list[int], lanes: list[int], waits: Waits) -> Iterator[Event]:
    records, details, names, count = trace.records, trace.details, trace.names, len(trace.streams)
    items = records["item"].tolist()
    rows = zip(
        items,
        records["stream"].tolist(),
        records["kind"].tolist(),
        records["start_ns"].tolist(),
        records["end_ns"].tolist(),
        details["nbytes"].tolist(),
        waits.ready.tolist(),
        waits.blocker.tolist(),
        waits.spent.tolist(),
        lanes,
        strict=True,
    )
    for item, stream, kind, start, end, nbytes, ready, blocker, spent, lane in rows:
        args: dict[str, Any] = {"item": item, "ready_us": ready / 1000}
        if nbytes:
            args["bytes"] = nbytes
        if trace.sites:
            args["recorded at"] = trace.sites[item]
        if blocker >= 0:
            args["after"] = names[items[blocker]]
        args |= {f"waited for {cause}, us": each / 1000 for cause, each in zip(CAUSES, spent, strict=True) if each}
        yield {
            "ph": "X",
            "pid": pids[stream],
            "tid": _tid(stream, lane, count),
            "name": names[item],
            "cat": KIND_WORDS[kind],
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": args,
        }
    for start, end, nbytes in merged_stalls(trace):
        yield {
            "ph": "X",
            "pid": 1,
            "tid": _tid(_STALLS, 0, count),
            "name": "held back for memory",
            "cat": "stall",
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": {"bytes": nbytes},
        }


def merged_stalls(trace: Trace) -> list[tuple[int, int, int]]:
    """The stalls without overlaps, each with the most bytes waited for in it."""
    found: list[tuple[int, int, int]] = []
    for start, end, nbytes in sorted(trace.stalls):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1]), max(nbytes, found[-1][2])
        else:
            found.append((start, end, nbytes))
    return found


def _arrows(trace: Trace, pids: list[int], lanes: list[int]) -> Iterator[Event]:
    """An arrow for each wait between two streams, from within the end of one item to the start of the other."""
    records, edges, count = trace.records, trace.edges, len(trace.streams)
    if edges is None:
        return
    of_item = {item: record for record, item in enumerate(records["item"].tolist())}
    stream, start, end = records["stream"].tolist(), records["start_ns"].tolist(), records["end_ns"].tolist()
    kind = records["kind"].tolist()
    for number, (source, target) in enumerate(zip(edges.source.tolist(), edges.target.tolist(), strict=True)):
        first, then = of_item.get(source, -1), of_item.get(target, -1)
        if first < 0 or then < 0 or stream[first] == stream[then]:
            continue
        word = "copy" if 1 in (kind[first], kind[then]) else "wait"
        arrow = {"id": number, "name": word, "cat": word}
        leaves = max(start[first], min(end[first] - 1, start[then]))  # in the span, and not after it arrives
        for ph, record, at in (("s", first, leaves), ("f", then, start[then])):
            lane = _tid(stream[record], lanes[record], count)
            yield {"ph": ph, "pid": pids[stream[record]], "tid": lane, "ts": at / 1000, "bp": "e", **arrow}


def _memory(trace: Trace) -> Iterator[Event]:
    times, levels = memory_levels(trace)
    for at, level in zip(times.tolist(), levels.tolist(), strict=True):
        yield {"ph": "C", "pid": 1, "name": "memory held", "ts": at / 1000, "args": {"bytes": level}}


def memory_levels(trace: Trace) -> tuple[Any, Any]:
    """Bytes that the run's arrays hold from each time on, at which it changes; what appears comes first."""
    held = trace.held
    times = np.concatenate([held["start_ns"], held["end_ns"]])
    steps = np.concatenate([held["nbytes"], -held["nbytes"]])
    by = np.lexsort((-steps, times))
    return times[by], np.cumsum(steps[by])


def _queues(trace: Trace, pids: list[int], waits: Waits) -> Iterator[Event]:
    """Per kind of stream: items that are ready and not started."""
    kinds = [name.partition(":")[0] if "/" in name else name for name in trace.streams]
    for kind in dict.fromkeys(kinds):
        of_kind = np.array([each == kind for each in kinds])[trace.records["stream"]] if len(trace.records) else []
        mine = np.flatnonzero(of_kind)
        if not len(mine):
            continue
        times = np.concatenate([waits.ready[mine], trace.records["start_ns"][mine]])
        steps = np.repeat([1, -1], len(mine))
        by = np.lexsort((-steps, times))
        times, depth = times[by], np.cumsum(steps[by])
        last = np.append(times[1:] != times[:-1], True)
        name = f"queue of {kind}"
        for at, level in zip(times[last].tolist(), depth[last].tolist(), strict=True):
            yield {"ph": "C", "pid": pids[kinds.index(kind)], "name": name, "ts": at / 1000, "args": {"items": level}}
