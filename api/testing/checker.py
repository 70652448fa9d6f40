"""Prove that a plan orders what must be ordered, knowing nothing of how it was planned.

The checker derives conflicts anew, pair by pair, from the recorded accesses (by masks of the elements they touch)
and the explicit orders, and looks for a chain of the plan's waits for each. It is quadratic: for tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from plait.errors import PlanError
from plait.graph import Access, Buffer, BufferSlice, Graph, Uses, WorkItem
from plait.scheduler import Plan

_Touch = tuple[Any, bool, Any]


def check_plan(plan: Plan) -> None:
    """Raise PlanError naming the first pair of conflicting items that no chain of waits orders."""
    graph = plan.program.graph
    items = plan.program.items
    count = len(items)
    if sorted(plan.order.tolist()) != list(range(count)):
        raise PlanError("the plan does not hold every item exactly once")
    position = {int(index): place for place, index in enumerate(plan.order.tolist())}
    waits: list[list[int]] = [[] for _ in range(count)]
    for source, target in zip(plan.waits.source.tolist(), plan.waits.target.tolist(), strict=True):
        if source >= target:
            raise PlanError(f"position {target} waits for position {source}, which does not come before it")
        waits[target].append(source)
    behind: list[int] = []
    for place in range(count):
        reached = 0
        for source in waits[place]:
            reached |= behind[source] | (1 << source)
        behind.append(reached)
    touches = [_touches(graph, item) for item in items]
    explicit = set(graph.explicit)
    for later in range(count):
        for earlier in range(later):
            ordered = behind[position[later]] >> position[earlier] & 1
            if not ordered and ((earlier, later) in explicit or _conflict(touches[earlier], touches[later])):
                raise PlanError(f"nothing orders {items[earlier].name!r} before {items[later].name!r}")


def _touches(graph: Graph, item: WorkItem) -> list[_Touch]:
    found: list[_Touch] = [(output.index, True, None) for output in item.outputs]
    if item.kind in ("copy", "fill"):
        found.append(_touch(item.args[0], True))
        parts: list[Any] = [item.args[1]]
    else:
        parts = [*item.args, *(item.kwargs or {}).values()]
    while parts:
        part = parts.pop()
        if isinstance(part, Access):
            found.append(_touch(part.target, part.mode > 1))
        elif isinstance(part, Buffer | BufferSlice):
            found.append(_touch(part, False))
        elif isinstance(part, Uses):
            found.append((part.name, not part.shared, None))
        elif isinstance(part, list | tuple | dict):
            parts.extend(part.values() if isinstance(part, dict) else part)
    return found


def _touch(target: Buffer | BufferSlice, writes: bool) -> _Touch:
    if isinstance(target, Buffer):
        return target.index, writes, None
    shape = target.buffer.shape
    if shape is None:
        return target.buffer.index, writes, None
    mask = np.zeros(shape, dtype=bool)
    view: Any = mask
    for key in target.keys:
        last = key if isinstance(key, tuple) else (key,)
        view = view[last if Ellipsis in last else (*last, Ellipsis)]
    view[...] = True
    return target.buffer.index, writes, mask


def _conflict(first: list[_Touch], second: list[_Touch]) -> bool:
    return any(
        what == other and (writes or overwrites) and _meet(mask, cover)
        for what, writes, mask in first
        for other, overwrites, cover in second
    )


def _meet(mask: Any, cover: Any) -> bool:
    """Whether two element masks share an element; None is the whole buffer."""
    if mask is None or cover is None:
        known = mask if cover is None else cover
        return known is None or bool(known.any())
    return bool((mask & cover).any())
