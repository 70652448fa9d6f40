"""Recompute a report's figures from a saved trace, by other means: plain Python on the file, none of plait's code.

python scripts/recompute_report.py TRACE.json

Where the report merges intervals and sorts arrays, this cuts the run at every moment at which anything begins or ends
and asks of each piece what was going on in it. Slow, and easy to believe.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

TINY_NS = 20_000


def read(path: str | Path) -> dict[str, Any]:
    """The trace as data, records as dictionaries in order of start."""
    data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))["plait"]
    columns = {**data["records"], **data["details"]}
    data["rows"] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    waits: dict[int, list[int]] = {}
    for source, target in zip(data["edges"]["source"], data["edges"]["target"], strict=True):
        waits.setdefault(target, []).append(source)
    data["waits"] = waits
    return data


def pieces(moments: list[int], makespan: int) -> list[tuple[int, int]]:
    """The run cut at these moments."""
    cuts = sorted({0, makespan, *(moment for moment in moments if 0 < moment < makespan)})
    return list(itertools.pairwise(cuts))


def figures(path: str | Path) -> dict[str, Any]:
    """What the report says, recomputed; times in nanoseconds."""
    data = read(path)
    rows, makespan = data["rows"], data["makespan_ns"]
    for row in rows:
        row["ready"] = ready(data, row)
    length, names = critical(data)
    busy, waiting = streams(data)
    copies = [row for row in rows if row["kind"] == 1]
    hidden = None
    parts = pieces([row[key] for row in rows for key in ("start_ns", "end_ns")], makespan)
    if any(row["end_ns"] > row["start_ns"] for row in copies):
        copying = [part for part in parts if covers(copies, part)]
        both = [part for part in copying if covers([row for row in rows if row["kind"] == 0], part)]
        hidden = total(both) / total(copying)
    kinds = [kind(name) for name in data["streams"]]
    work: dict[str, float] = {}
    for row in rows:
        if kinds[row["stream"]] != "loop":
            work[kinds[row["stream"]]] = work.get(kinds[row["stream"]], 0) + row["end_ns"] - row["start_ns"]
    lanes = {each: kinds.count(each) for each in work}
    if "host/compute" in work and data["cores"]:
        computing = [row for row in rows if kinds[row["stream"]] == "host/compute"]
        seen = max(
            sum(other["start_ns"] <= row["start_ns"] < other["end_ns"] for other in computing) for row in computing
        )
        lanes["host/compute"] = min(lanes["host/compute"], max(seen, data["cores"]))
    bounds = {"critical path": float(length), **{each: sum_ / lanes[each] for each, sum_ in work.items()}}
    return {
        "items": len(rows),
        "makespan": makespan,
        "critical path": names,
        "bounds": bounds,
        "busy": busy,
        "waiting": waiting,
        "hidden": hidden,
        "copied": sum(row["nbytes"] for row in copies),
        "peak": peak(data),
        "spent": spent(data),
    }


def kind(stream: str) -> str:
    """``host/compute`` of ``host/compute:1``; the loop's stream has no number."""
    head, colon, number = stream.rpartition(":")
    return head if colon and number.isdigit() else stream


def covers(rows: list[dict[str, Any]], part: tuple[int, int]) -> bool:
    """Whether one of these items was going on in a piece."""
    return any(row["start_ns"] <= part[0] and part[1] <= row["end_ns"] for row in rows)


def total(parts: list[tuple[int, int]]) -> int:
    return sum(high - low for low, high in parts)


def ready(data: dict[str, Any], row: dict[str, Any]) -> int:
    """When the last item that this one waits for had ended."""
    ends = [other["end_ns"] for other in data["rows"] if other["item"] in data["waits"].get(row["item"], ())]
    return max(0, min(max(ends, default=0), row["start_ns"]))


def critical(data: dict[str, Any]) -> tuple[int, list[str]]:
    """The longest chain of dependent items by their times; the first of several, as items are numbered."""
    took = {row["item"]: row["end_ns"] - row["start_ns"] for row in data["rows"]}
    after: dict[int, list[int]] = {}
    for target, sources in data["waits"].items():
        for source in sources:
            after.setdefault(source, []).append(target)
    left = {item: len(after.get(item, ())) for item in range(len(data["names"]))}
    rank: dict[int, int] = {}
    free = [item for item, count in left.items() if not count]
    while free:
        item = free.pop()
        rank[item] = took.get(item, 0) + max((rank[each] for each in after.get(item, ())), default=0)
        for source in data["waits"].get(item, ()):
            left[source] -= 1
            if not left[source]:
                free.append(source)
    at = min((item for item in rank if not data["waits"].get(item)), key=lambda item: (-rank[item], item), default=-1)
    length, names = rank.get(at, 0), []
    while at >= 0:
        names += [data["names"][at]] if at in took else []
        at = min(after.get(at, ()), key=lambda item: (-rank[item], item), default=-1)
    return length, names


def own_stalls(data: dict[str, Any], row: dict[str, Any]) -> list[tuple[int, int]]:
    """The times between its ready and its start at which an item was held back for memory."""
    found = [(low, high) for low, high, _ in data["stalls"]]
    return [(low, high) for low, high in found if row["ready"] <= low and high <= row["start_ns"]]


def streams(data: dict[str, Any]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Per stream, time in items, and of the rest what it waited for: piece by piece."""
    busy: dict[str, int] = {}
    waiting: dict[str, dict[str, int]] = {}
    for index, name in enumerate(data["streams"]):
        mine = [row for row in data["rows"] if row["stream"] == index]
        if not mine:
            continue
        moments = [row[key] for row in mine for key in ("start_ns", "end_ns", "ready")]
        busy[name] = 0
        waiting[name] = dict.fromkeys(("wait", "memory", "host", "idle"), 0)
        for part in pieces(moments, data["makespan_ns"]):
            coming = [row for row in mine if row["start_ns"] >= part[1]]
            if covers(mine, part):
                busy[name] += part[1] - part[0]
            elif not coming:
                waiting[name]["idle"] += part[1] - part[0]
            elif coming[0]["ready"] > part[0]:
                waiting[name]["wait"] += part[1] - part[0]
            else:
                waiting[name]["memory" if own_stalls(data, coming[0]) else "host"] += part[1] - part[0]
    return busy, waiting


def peak(data: dict[str, Any]) -> int:
    """The most bytes held at the moment that something appears, what ends at that moment still counted."""
    if data["peak_bytes"] is not None:
        return int(data["peak_bytes"])
    held = list(zip(*(data["held"][key] for key in ("start_ns", "end_ns", "nbytes")), strict=True))
    return max((sum(n for low, high, n in held if low <= at <= high) for at, _, _ in held), default=0)


def spent(data: dict[str, Any]) -> dict[str, int]:
    """What each moment went to, from the last item back; for runs without limited groups.

    Dependencies get no more than their longest chain takes: what is beyond it, earliest first, was an item's own time
    behind which a later one waited for memory, and goes to that.
    """
    rows, told = data["rows"], list[tuple[str, int, bool]]()
    at, short = data["makespan_ns"], False  # whether a later item waited for memory

    def add(cause: str, low: int, high: int, behind: bool = False) -> None:
        if high > low:
            told.append((cause, high - low, behind))

    if not rows:
        return {"host": at} if at > 0 else {}
    row, link = max(rows, key=lambda each: each["end_ns"]), "dependencies"
    add("host", row["end_ns"], at)
    at = min(at, row["end_ns"])
    while True:
        tiny = row["end_ns"] - row["start_ns"] < TINY_NS and data["streams"][row["stream"]].startswith("host/")
        add({1: "copies", 2: "awaits"}.get(row["kind"], "host" if tiny else link), row["start_ns"], at, short)
        at = min(at, row["start_ns"])
        earlier = rows[: rows.index(row)]
        same = [each for each in earlier if each["stream"] == row["stream"]]
        before = max(same, key=lambda each: (each["end_ns"], each["start_ns"]), default=None)
        free = before["end_ns"] if before else 0
        latest = min(at, max(row["ready"], free, 0))
        own = own_stalls(data, row)
        add("memory" if own else "host", latest, at)
        short = short or bool(own)
        at = latest
        causes = [each for each in rows if each["item"] in data["waits"].get(row["item"], ())]
        if before is not None and free > row["ready"]:
            own += [(min(free, row["start_ns"]), row["start_ns"])] if own else []
            window = pieces([moment for span in own for moment in span] + [row["ready"]], row["start_ns"])
            held = total([part for part in window if any(low <= part[0] and part[1] <= high for low, high in own)])
            left = row["start_ns"] - row["ready"] - held
            behind = min(max(0, min(free, row["start_ns"]) - row["ready"]), left)
            link = "memory" if held and held >= behind and held >= left - behind else "streams"
            following = before
        else:
            link, following = "dependencies", max(causes, key=lambda each: each["end_ns"], default=None)
        if following is None or at <= 0 or rows.index(following) >= rows.index(row):
            break
        row = following
    beyond = sum(spell for cause, spell, _ in told if cause == "dependencies") - critical(data)[0]
    found: dict[str, int] = {}
    for cause, spell, behind in reversed(told):
        moved = cause == "dependencies" and behind and beyond > 0
        beyond -= spell if moved else 0
        found["memory" if moved else cause] = found.get("memory" if moved else cause, 0) + spell
    if at > 0:
        found["host"] = found.get("host", 0) + at
    return found


if __name__ == "__main__":
    print(json.dumps(figures(sys.argv[1]), indent=1))
