"""A plan in words: what runs where, in what order, and what each item waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.scheduler.expand import SegmentItem
from plait.scheduler.kinds import LAUNCH, OUT

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan

NO_OUTPUTS = "no outputs: what the items return is not kept; name what is wanted with graph.output(name, value)"
_MOST_ITEMS, _MOST_WAITS = 200, 8


def kind_word(kind: int) -> str:
    """``compute``, ``copy`` or ``loop``, for an item of a plan."""
    if kind < 3:
        return ("compute", "copy", "loop")[kind]
    return "compute" if kind % 3 == LAUNCH else "copy"


def explain(plan: Plan) -> str:
    """A few lines about the whole, then a line for each of the first 200 items."""
    program = plan.program
    streams = (f"any of {plan.streams[0]} compute streams", f"any of {plan.streams[1]} copy streams", "the trio loop")
    lines = [
        f"plan of graph {program.graph.name!r}: {len(plan.calls)} items, {len(plan.waits.source)} waits, "
        f"policy {plan.policy}",
        *(
            f"  {plan.kinds.count(kind)} {kind_word(kind)} items on {plan.device}, {streams[kind]}"
            for kind in range(3)
            if kind in plan.kinds
        ),
        *_devices(plan),
        "  every wait is an event wait: a host item starts on whichever stream is free once its waits are done",
    ]
    if plan.on_device is not None:
        lines.append(
            "  between device items: stream order in one stream, an event wait between two; "
            "the host waits for what it reads"
        )
    if plan.straight:
        lines.append("  begins on one stream, item after item; other streams join when an item turns out to be long")
    if not program.outputs and any(item.outputs for item in program.items):
        lines.append(f"  {NO_OUTPUTS}")
    for name, limit in program.group_limits.items():
        if limit is not None:
            lines.append(f"  group {name!r}: at most {limit} in flight")
    offsets, sources = plan.waits.predecessors()
    for position, item in enumerate(plan.items[:_MOST_ITEMS]):
        waits = [
            f"{plan.item(int(source)).name}{_how(plan, int(source), position)}"
            for source in sources[offsets[position] : offsets[position + 1]]
        ]
        more = f" and {len(waits) - _MOST_WAITS} more" if len(waits) > _MOST_WAITS else ""
        after = f" after {', '.join(waits[:_MOST_WAITS])}{more}" if waits else ""
        stream = plan.stream(position)
        where = f" [{stream}]" if stream else ""
        lines.append(f"{position:5} {kind_word(plan.kinds[position]):7} {item.name}{where}{after}")
        if isinstance(item, SegmentItem):
            lines += _segment(item)
    if len(plan.calls) > _MOST_ITEMS:
        lines.append(f"      … and {len(plan.calls) - _MOST_ITEMS} more items")
    return "\n".join(lines)


def _segment(item: SegmentItem) -> list[str]:
    shown = ", ".join(item.members[:_MOST_WAITS])
    more = f" and {len(item.members) - _MOST_WAITS} more" if len(item.members) > _MOST_WAITS else ""
    lines = [f"            one graph of {len(item.members)} items: {shown}{more}"]
    lines += [
        f"            {name} is called between graphs, it cannot be captured: {reason}"
        for name, reason in item.segment.refused.items()
    ]
    return lines


def _devices(plan: Plan) -> list[str]:
    lines = []
    for place in plan.on_device.devices if plan.on_device is not None else ():
        positions = [position for position, kind in enumerate(plan.kinds) if kind // 3 == place]
        copies = sum(plan.kinds[position] % 3 != LAUNCH for position in positions)
        streams = sorted({plan.stream(position) or "" for position in positions})
        lines.append(
            f"  {len(positions) - copies} compute items and {copies} copies on {plan.places[place]}, "
            f"in {', '.join(streams)}"
        )
    return lines


def _how(plan: Plan, source: int, target: int) -> str:
    """How the wait is kept, where that differs between items."""
    if plan.on_device is None:
        return ""
    kinds = plan.kinds
    if kinds[source] < 3 or kinds[source] % 3 == OUT:
        return ""
    if kinds[target] < 3:
        return " (awaited)"
    return " (stream order)" if plan.stream(source) == plan.stream(target) else " (event)"
