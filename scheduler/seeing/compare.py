"""Two traces of one program beside each other: what got slower, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from plait.scheduler.seeing.blame import blame, by_cause
from plait.scheduler.seeing.units import format_bytes, format_seconds
from plait.scheduler.seeing.waits import CAUSES, find_waits
from plait.scheduler.trace import Trace

_MOST = 8
_NOTICED = 0.01  # of the longer makespan


@dataclass(frozen=True)
class Change:
    """One thing before and after, in seconds (or bytes, or a count)."""

    name: str
    before: float
    after: float

    @property
    def growth(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Comparison:
    """How a second run differs from a first. ``str()`` is a short text.

    ``spent`` compares what the time of the runs went to, by cause; the growths add up to that of the makespan.
    ``items`` compares the time inside items, summed by name, ``delays`` the time that items were ready and did not
    start, by cause, each with the largest change first. ``added`` and ``gone`` are items that only one run has.
    """

    makespan: Change
    spent: tuple[Change, ...]
    items: tuple[Change, ...]
    delays: tuple[Change, ...]
    peak_bytes: Change
    copied_bytes: Change
    added: tuple[str, ...]
    gone: tuple[str, ...]

    def __str__(self) -> str:
        before, after = self.makespan.before, self.makespan.after
        word = "slower" if after > before else "faster"
        ratio = max(before, after) / max(min(before, after), 1e-12)
        noticed = _NOTICED * max(before, after)
        lines = [f"{format_seconds(before)} before, {format_seconds(after)} after: {ratio:.3g}x {word}"]
        for title, changes in (
            ("why, by what each moment went to", self.spent),
            ("time inside items", self.items),
            ("time that items were ready and did not start", self.delays),
        ):
            shown = [change for change in changes if abs(change.growth) > noticed][:_MOST]
            if shown:
                lines.append(f"  {title}:")
                lines += [f"    {_text(change, format_seconds)}" for change in shown]
        for title, change in (("peak memory", self.peak_bytes), ("copied", self.copied_bytes)):
            if change.growth:
                lines.append(f"  {title}: {_text(change, lambda value: format_bytes(int(value)))}")
        for title, names in (("only before", self.gone), ("only after", self.added)):
            if names:
                more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
                lines.append(f"  {title}: {', '.join(names[:_MOST])}{more}")
        if len(lines) == 1:
            lines.append("  no part changed by more than a hundredth of the run")
        return "\n".join(lines)


def _text(change: Change, text: Callable[[float], str]) -> str:
    sign = "+" if change.growth >= 0 else "-"
    growth = f"{sign}{text(abs(change.growth))}"
    return f"{change.name + ': ' if change.name else ''}{growth} ({text(change.before)} -> {text(change.after)})"


def compare(before: Trace, after: Trace) -> Comparison:
    """What differs between two runs, by cause, by item and by delay."""
    first, second = before.report(), after.report()
    names = set(before.names), set(after.names)
    return Comparison(
        Change("", first.makespan_s, second.makespan_s),
        _changes(_spent(before), _spent(after)),
        _changes(_inside(before), _inside(after)),
        _changes(_delays(before), _delays(after)),
        Change("", first.peak_bytes or 0, second.peak_bytes or 0),
        Change("", first.copied_bytes, second.copied_bytes),
        tuple(sorted(names[1] - names[0])),
        tuple(sorted(names[0] - names[1])),
    )


def _changes(before: dict[str, float], after: dict[str, float]) -> tuple[Change, ...]:
    changes = [Change(name, before.get(name, 0.0), after.get(name, 0.0)) for name in dict.fromkeys([*before, *after])]
    return tuple(sorted(changes, key=lambda change: -abs(change.growth)))


def _spent(trace: Trace) -> dict[str, float]:
    return {cause: each / 1e9 for cause, each in by_cause(blame(trace, find_waits(trace))).items()}


def _inside(trace: Trace) -> dict[str, float]:
    """Seconds by name, items of one function (``multiply#3``) together."""
    found: dict[str, float] = {}
    spans = ((trace.records["end_ns"] - trace.records["start_ns"]) / 1e9).tolist()
    for item, span in zip(trace.records["item"].tolist(), spans, strict=True):
        name = re.sub(r"#\d+$", "", trace.names[item])
        found[name] = found.get(name, 0.0) + span
    return found


def _delays(trace: Trace) -> dict[str, float]:
    spent = find_waits(trace).spent.sum(axis=0) / 1e9
    return dict(zip(CAUSES, np.asarray(spent).tolist(), strict=True))
