"""What bounds a run, the evidence, and the setting or change to try: the largest part of the run first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from plait.scheduler.seeing.blame import (
    AWAITS,
    CHAIN,
    COPIES,
    GROUP_FULL,
    HOST_BUSY,
    MEMORY_FULL,
    STREAMS,
    TINY_NS,
    Part,
    by_cause,
)
from plait.scheduler.seeing.units import format_bytes, format_seconds, kind_of
from plait.scheduler.seeing.waits import Waits
from plait.scheduler.trace import Trace

_LEAST_SHARE = 0.05
_FEW = 100  # items, of which it means nothing that most are tiny


@dataclass(frozen=True)
class Advice:
    """Something that bounds a run: ``seconds`` of it went there. What shows that, and what to change."""

    cause: str
    seconds: float
    share: float
    evidence: str
    change: str

    def __str__(self) -> str:
        return f"{self.cause} ({self.share:.0%} of the time): {self.evidence}. Try: {self.change}"


def advise(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[Advice, ...]:
    """One piece of advice for each cause that took a twentieth of the run or more, the largest first."""
    makespan = max(1, trace.makespan_ns)
    found: list[Advice] = []
    if not len(trace):
        return ()
    for cause, nanoseconds in by_cause(parts).items():
        share = nanoseconds / makespan
        if share >= _LEAST_SHARE:
            evidence, change = _WRITERS[cause](trace, waits, [part for part in parts if part.cause == cause])
            found.append(Advice(cause, nanoseconds / 1e9, share, evidence, change))
    return tuple(found)


def _longest(trace: Trace, parts: Iterable[Part]) -> str:
    """The three items that took most of these parts."""
    total: dict[str, int] = {}
    for part in parts:
        if part.record >= 0:
            name = trace.names[trace.records["item"][part.record]]
            total[name] = total.get(name, 0) + part.end_ns - part.start_ns
    most = sorted(total.items(), key=lambda each: -each[1])[:3]
    return ", ".join(f"{name} {format_seconds(each / 1e9)}" for name, each in most)


def _chain(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[str, str]:
    many = f"{len(parts)} items ran one after the other because each needs the one before"
    return (
        f"{many if len(parts) > 1 else 'at the end one item ran alone'}, longest {_longest(trace, parts)}",
        "shorten or split these items, or record what they read as slices, so that parts need not wait for the whole; "
        "more streams will not help",
    )


def _copies(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[str, str]:
    copies = trace.records["kind"] == 1
    nbytes = int(trace.details["nbytes"][copies].sum())
    spans = float((trace.records["end_ns"] - trace.records["start_ns"])[copies].sum()) / 1e9
    rate = f" at {format_bytes(int(nbytes / spans))}/s" if nbytes and spans else ""
    moved = f"{format_bytes(nbytes)}{rate}" if nbytes else f"{int(copies.sum())} copies"
    return (
        f"the run waited for copies ({moved}), longest {_longest(trace, parts)}",
        "copy less (leave data where it is used, smaller dtypes, slices instead of whole buffers), or cut work into "
        "parts so that one part is copied while another is computed",
    )


def _awaits(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[str, str]:
    return (
        f"the run waited for async items, longest {_longest(trace, parts)}",
        "start them earlier (record them first, or give them a priority), or ask for more at once",
    )


def _streams(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[str, str]:
    kinds = [kind_of(trace.streams[trace.records["stream"][part.record]]) for part in parts if part.record >= 0]
    kind = max(set(kinds), key=kinds.count)
    of_kind = [kind_of(name) for name in trace.streams]
    count = of_kind.count(kind)
    mine = np.array([each == kind for each in of_kind])[trace.records["stream"]]
    waited = int((waits.spent[mine].sum(axis=1) > 0).sum())
    evidence = (
        f"{waited} items were ready and waited for one of {count} {kind} stream{'s' if count > 1 else ''}, "
        f"behind {_longest(trace, parts)}"
    )
    if kind != "host/compute":
        return evidence, f"open the scheduler with more streams than {count}, or spread the items over more devices"
    if count < trace.cores:
        return evidence, f"open the scheduler with streams={trace.cores}, as many as there are cores"
    return evidence, (
        f"there are {trace.cores} cores and all were busy: make these items cheaper, or run them on a device; if they "
        "wait more than they compute, more streams than cores help"
    )


def _memory(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[str, str]:
    most = max((nbytes for _, _, nbytes in trace.stalls), default=0)
    return (
        f"items were held back {len(trace.stalls)} times until memory was free, up to {format_bytes(most)} at once",
        "raise memory_limit, cut work into smaller parts, update buffers in place, or order the graph so that large "
        "results are used soon",
    )


def _limit(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[str, str]:
    limits = ", ".join(f"{limit.name} (limit {limit.most})" for limit in trace.limits)
    return (
        f"items waited for room in a group: {limits}",
        "raise the limit of the group, or leave items that need not be limited out of it",
    )


def _host(trace: Trace, waits: Waits, parts: list[Part]) -> tuple[str, str]:
    spans = trace.records["end_ns"] - trace.records["start_ns"]
    tiny = np.array([name.startswith("host/") for name in trace.streams], bool)[trace.records["stream"]]
    tiny &= spans < TINY_NS
    in_items = sum(part.end_ns - part.start_ns for part in parts if part.record >= 0)
    gaps = sum(part.end_ns - part.start_ns for part in parts) - in_items
    if in_items >= gaps or 2 * int(tiny.sum()) >= len(spans) > _FEW:
        mean = format_seconds(float(spans[tiny].mean()) / 1e9)
        return (
            f"{int(tiny.sum())} of {len(spans)} items took {mean} on average, "
            "no more than it costs to schedule them, so streams do not help",
            "do more in each item (a whole array or tile instead of a row or number), or fuse neighbours",
        )
    change = "do more in each item"
    if any(not name.startswith(("host/", "loop")) for name in trace.streams):
        change += ", or run plan.capture(), which launches many device items at once"
    return (
        f"streams stood still for {format_seconds(gaps / 1e9)} in which the next item was ready: the host was late",
        change + "; look for an item that holds the interpreter's lock, and for other processes on these cores",
    )


_Writer = Callable[[Trace, Waits, list[Part]], tuple[str, str]]
_WRITERS: dict[str, _Writer] = {
    CHAIN: _chain,
    COPIES: _copies,
    AWAITS: _awaits,
    STREAMS: _streams,
    MEMORY_FULL: _memory,
    GROUP_FULL: _limit,
    HOST_BUSY: _host,
}
