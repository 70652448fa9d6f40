"""The Chrome trace format's documented rules, checked on a file; knows nothing of plait.

From the "Trace Event Format" document: required members by phase, spans of one thread nest, both ends of a flow lie in
spans of their threads with one id and category and do not go back in time, counters hold numbers, metadata events name
things. Perfetto drops what breaks these, silently.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

PHASES = {"X": {"ts", "dur", "name", "pid", "tid"}, "M": {"name", "pid", "args"}, "C": {"ts", "name", "pid", "args"}}
PHASES |= {"s": {"ts", "name", "cat", "id", "pid", "tid"}, "f": {"ts", "name", "cat", "id", "pid", "tid", "bp"}}
NAMES = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
NAMES |= {"thread_sort_index": "sort_index", "process_labels": "labels"}


def check(path: str | Path) -> list[dict[str, Any]]:
    """The file's events; AssertionError for the first rule that is broken."""
    document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_constant)
    assert isinstance(document, dict) and isinstance(document["traceEvents"], list), "the object form has traceEvents"
    assert document.get("displayTimeUnit") in ("ms", "ns")
    events: list[dict[str, Any]] = document["traceEvents"]
    for event in events:
        missing = PHASES[event["ph"]] - event.keys()
        assert not missing, f"{event} lacks {missing}"
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) and 0 <= event[key] < 2**31 for key in ("pid", "tid") if key in event)
        assert all(isinstance(event[key], int | float) for key in ("ts", "dur") if key in event)
        assert event.get("dur", 0) >= 0
    _check_names(events)
    _check_nesting(events)
    _check_flows(events)
    _check_counters(events)
    return events


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def _check_names(events: list[dict[str, Any]]) -> None:
    named, processes = set(), set()
    for event in events:
        if event["ph"] == "M":
            assert NAMES[event["name"]] in event["args"], event
            if event["name"] == "thread_name":
                assert (event["pid"], event["tid"]) not in named, f"two names for one thread: {event}"
                named.add((event["pid"], event["tid"]))
            if event["name"] == "process_name":
                processes.add(event["pid"])
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xsf"}
    assert used <= named, f"threads without a name: {used - named}"
    assert {event["pid"] for event in events} <= processes


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)


def _threads(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    spans = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = nanoseconds(event["ts"])
            spans[event["pid"], event["tid"]].append((start, start + nanoseconds(event["dur"])))
    return spans


def _check_nesting(events: list[dict[str, Any]]) -> None:
    for thread, spans in _threads(events).items():
        stack: list[tuple[int, int]] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1][1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1][1], f"spans of thread {thread} overlap at {start}"
            stack.append((start, end))


def _check_flows(events: list[dict[str, Any]]) -> None:
    spans = _threads(events)
    ends = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            ends[event["cat"], event["name"], event["id"]].append(event)
            at = nanoseconds(event["ts"])
            inside = any(start <= at <= end for start, end in spans[event["pid"], event["tid"]])
            assert inside, f"{event} is in no span"
    for flow, pair in ends.items():
        assert [event["ph"] for event in pair] == ["s", "f"], f"flow {flow} is {pair}"
        assert pair[0]["ts"] <= pair[1]["ts"], f"flow {flow} goes back in time"


def _check_counters(events: list[dict[str, Any]]) -> None:
    last: dict[tuple[int, str], float] = {}
    for event in events:
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, int | float) for value in event["args"].values())
            key = event["pid"], event["name"]
            assert event["ts"] >= last.get(key, event["ts"]), f"counter {key} goes back in time"
            last[key] = event["ts"]
