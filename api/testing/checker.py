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
from plait.scheduler.expand import Transfer

_Touch = tuple[Any, bool, bool, Any]  # what, read, written, a mask of elements or None for all


def check_plan(plan: Plan) -> None:
    """Raise PlanError naming the first pair of conflicting items that no chain of waits orders.

    Where items run on devices, also prove that transfers are ordered like any other use of a replica, and that every
    item finds what the serial program would have given it in the replica that it reads.
    """
    graph = plan.program.graph
    count = len(plan.work)
    if sorted(plan.order.tolist()) != list(range(count)):
        raise PlanError("the plan does not hold every item exactly once")
    behind = _behind(plan)
    position = {id(plan.item(place)): place for place in range(count)}
    items = plan.program.items
    touches = [_touches(graph, item) for item in items]
    explicit = set(graph.explicit)
    for later, item in enumerate(items):
        for earlier in range(later):
            if (earlier, later) in explicit or _conflict(touches[earlier], touches[later]):
                _demand(behind, position[id(items[earlier])], position[id(item)], plan)
    if len(items) < count:
        _check_replicas(plan, behind, touches)


def conflicts(plan: Plan) -> list[tuple[int, int]]:
    """Pairs of positions of which the first must have ended when the second begins, derived anew as for ``check_plan``.

    Which one is the first, the recorded order says, with a transfer just before the item that it was inserted for.
    """
    graph, order = plan.program.graph, plan.order.tolist()
    position = {index: place for place, index in enumerate(order)}
    of_item = {id(plan.work[index]): index for index in order}
    found: set[tuple[int, int]] = set()
    for earlier, later in graph.explicit:
        first, second = (of_item.get(id(plan.program.items[index])) for index in (earlier, later))
        if first is not None and second is not None:
            found.add((first, second))
    users: dict[Any, list[tuple[int, bool, Any]]] = {}
    for index in range(len(order)):
        item = plan.work[index]
        touched = [] if isinstance(item, Transfer) else _touches(graph, item)
        for what, _, writes, mask in _uses(plan, item, plan.kinds[position[index]] // 3, touched):
            users.setdefault(what, []).append((index, writes, mask))
    for same in users.values():
        for number, (later, writes, mask) in enumerate(same):
            for earlier, overwrites, cover in same[:number]:
                if earlier != later and (writes or overwrites) and (earlier, later) not in found and _meet(mask, cover):
                    found.add((earlier, later))
    return [(position[first], position[second]) for first, second in sorted(found)]


def _behind(plan: Plan) -> list[int]:
    """Per position, as bits, the positions that some chain of waits puts before it."""
    count = len(plan.work)
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
    return behind


def _demand(behind: list[int], before: int, after: int, plan: Plan) -> None:
    if not behind[after] >> before & 1:
        raise PlanError(f"nothing orders {plan.item(before).name!r} before {plan.item(after).name!r}")


def _check_replicas(plan: Plan, behind: list[int], touches: list[list[_Touch]]) -> None:
    """Replay the plan on replicas whose elements say who wrote them, against the same of a serial run."""
    program = plan.program
    index = {id(item): number for number, item in enumerate(program.items)}
    serial: dict[Any, Any] = {}
    expected: list[list[Any]] = []
    for number, touched in enumerate(touches):
        expected.append([_part(_cells(plan, serial, what, 0), mask).copy() for what, _, _, mask in touched])
        for what, _, writes, mask in touched:
            if writes:
                _part(_cells(plan, serial, what, 0), mask)[...] = number + 1
    replicas: dict[Any, Any] = {}
    used: list[list[_Touch]] = []
    for position in range(len(plan.work)):
        item, place = plan.item(position), plan.kinds[position] // 3
        uses = _uses(plan, item, place, touches[index[id(item)]] if id(item) in index else [])
        for earlier in range(position):
            if _conflict(used[earlier], uses):
                _demand(behind, earlier, position, plan)
        used.append(uses)
        if isinstance(item, Transfer):
            if item.buffer is not None:
                target = _cells(plan, replicas, item.buffer.index, item.target)
                source = None if item.source is None else _cells(plan, replicas, item.buffer.index, item.source)
                target[...] = source if source is not None else 0 if item.filled else _NOTHING
            continue
        number = index[id(item)]
        for (what, reads, _, mask), wanted in zip(touches[number], expected[number], strict=True):
            found = _part(_cells(plan, replicas, what, place), mask)
            if reads and not np.array_equal(found, wanted):
                raise PlanError(
                    f"{item.name!r} would read a stale replica of {_name(plan, what)} on {plan.places[place]}"
                )
        for what, _, writes, mask in touches[number]:
            if writes:
                _part(_cells(plan, replicas, what, place), mask)[...] = number + 1
    for name, value in program.outputs.items():
        what = value.buffer.index if isinstance(value, BufferSlice) else value.index
        if not np.array_equal(_cells(plan, replicas, what, 0), _cells(plan, serial, what, 0)):
            raise PlanError(f"output {name!r} would not be what the serial program gives")


_NOTHING = -1  # what an element holds that nobody has written


def _uses(plan: Plan, item: WorkItem | Transfer, place: int, touched: list[_Touch]) -> list[_Touch]:
    if not isinstance(item, Transfer):
        return [((what, place) if isinstance(what, int) else what, *rest) for what, *rest in touched]
    what = item.buffer.index if item.buffer is not None else f"slot {item.target_slot}"
    uses: list[_Touch] = [((what, item.target), False, True, None)]
    if item.source is not None:
        uses.append(((what, item.source), True, False, None))
    return uses


def _cells(plan: Plan, contents: dict[Any, Any], what: Any, place: int) -> Any:
    """One integer per element of a replica: 0 as it was at first, else 1 + the item that wrote it."""
    cells = contents.get((what, place))
    if cells is None:
        shape = plan.program.graph.buffer_at(what).shape if isinstance(what, int) else None
        cells = contents[what, place] = np.full(shape or (), _NOTHING if place else 0, dtype=np.int64)
    return cells


def _part(cells: Any, mask: Any) -> Any:
    return cells[...] if mask is None or not cells.ndim else _Masked(cells, mask)


class _Masked:
    """The elements of an array under a mask, to read and to set."""

    def __init__(self, cells: Any, mask: Any) -> None:
        self.cells = cells
        self.mask = mask

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.cells[self.mask], dtype=dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.cells[self.mask] = value

    def copy(self) -> Any:
        return self.cells[self.mask].copy()


def _name(plan: Plan, what: Any) -> str:
    return repr(plan.program.graph.buffer_at(what).name) if isinstance(what, int) else str(what)


def _touches(graph: Graph, item: WorkItem) -> list[_Touch]:
    found: list[_Touch] = [(output.index, False, True, None) for output in item.outputs]
    if item.kind in ("copy", "fill"):
        found.append(_touch(item.args[0], False, True))
        parts: list[Any] = [item.args[1]]
    else:
        parts = [*item.args, *(item.kwargs or {}).values()]
    while parts:
        part = parts.pop()
        if isinstance(part, Access):
            found.append(_touch(part.target, part.mode != 2, part.mode > 1))
        elif isinstance(part, Buffer | BufferSlice):
            found.append(_touch(part, True, False))
        elif isinstance(part, Uses):
            found.append((part.name, True, not part.shared, None))
        elif isinstance(part, list | tuple | dict):
            parts.extend(part.values() if isinstance(part, dict) else part)
    return found


def _touch(target: Buffer | BufferSlice, reads: bool, writes: bool) -> _Touch:
    if isinstance(target, Buffer):
        return target.index, reads, writes, None
    shape = target.buffer.shape
    if shape is None:
        return target.buffer.index, reads, writes, None
    mask = np.zeros(shape, dtype=bool)
    view: Any = mask
    for key in target.keys:
        last = key if isinstance(key, tuple) else (key,)
        view = view[last if Ellipsis in last else (*last, Ellipsis)]
    view[...] = True
    return target.buffer.index, reads, writes, mask


def _conflict(first: list[_Touch], second: list[_Touch]) -> bool:
    return any(
        what == other and (writes or overwrites) and _meet(mask, cover)
        for what, _, writes, mask in first
        for other, _, overwrites, cover in second
    )


def _meet(mask: Any, cover: Any) -> bool:
    """Whether two element masks share an element; None is the whole buffer."""
    if mask is None or cover is None:
        known = mask if cover is None else cover
        return known is None or bool(known.any())
    return bool((mask & cover).any())
