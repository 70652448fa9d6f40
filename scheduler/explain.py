"""A plan in words: what runs where, in what order, and what each item waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan

_MOST_ITEMS, _MOST_WAITS = 200, 8


def explain(plan: Plan) -> str:
    """A few lines about the whole, then a line for each of the first 200 items."""
    from plait.scheduler.plan import KIND_WORDS  # noqa: PLC0415  plan imports this module

    program = plan.program
    counts = [plan.kinds.count(kind) for kind in range(3)]
    streams = (f"any of {plan.streams[0]} compute streams", f"any of {plan.streams[1]} copy streams", "the trio loop")
    lines = [
        f"plan of graph {program.graph.name!r}: {len(plan.calls)} items, {len(plan.waits.source)} waits, "
        f"policy {plan.policy}",
        *(
            f"  {count} {word} items on {plan.device}, {where}"
            for count, word, where in zip(counts, KIND_WORDS, streams, strict=True)
            if count
        ),
        "  every wait is an event wait: a host item starts on whichever stream is free once its waits are done",
    ]
    if plan.straight:
        lines.append("  begins on one stream, item after item; other streams join when an item turns out to be long")
    for name, limit in program.group_limits.items():
        if limit is not None:
            lines.append(f"  group {name!r}: at most {limit} in flight")
    offsets, sources = plan.waits.predecessors()
    for position, item in enumerate(plan.items[:_MOST_ITEMS]):
        waits = [plan.item(int(source)).name for source in sources[offsets[position] : offsets[position + 1]]]
        more = f" and {len(waits) - _MOST_WAITS} more" if len(waits) > _MOST_WAITS else ""
        after = f" after {', '.join(waits[:_MOST_WAITS])}{more}" if waits else ""
        lines.append(f"{position:5} {KIND_WORDS[plan.kinds[position]]:7} {item.name}{after}")
    if len(plan.calls) > _MOST_ITEMS:
        lines.append(f"      … and {len(plan.calls) - _MOST_ITEMS} more items")
    return "\n".join(lines)
