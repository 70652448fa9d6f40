"""Contract a plan's device items into segments, each of which becomes one graph of the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.devices import Segment, Step, cupy
from plait.errors import PlanError
from plait.graph import BARRIER, BUFFER, Edges
from plait.graph.buffer import Buffer
from plait.graph.hazards import WRITE
from plait.graph.options import Options
from plait.scheduler.bind import Values
from plait.scheduler.device_plan import device_part
from plait.scheduler.expand import SegmentItem, Transfer
from plait.scheduler.kinds import LAUNCH

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan


def capture_plan(plan: Plan) -> Plan:
    """The plan with what each device does between two of its meetings with others as one segment.

    PlanError if there is nothing to capture.
    """
    if plan.captured:
        return plan
    part = plan.on_device
    stages = _stages(plan) if part is not None else []
    groups: dict[tuple[int, int], list[int]] = {}
    for position, stage in enumerate(stages):
        if stage >= 0:
            groups.setdefault((plan.kinds[position] // 3, stage), []).append(position)
    members = [group for group in groups.values() if len(group) > 1]
    if not members:
        raise PlanError(
            f"nothing of graph {plan.program.graph.name!r} can be captured: that takes two calls or more on one "
            "device, without retries, timeouts or limited groups, and nothing on the host between them"
        )
    return _contracted(plan, members)


def _capturable(plan: Plan, position: int) -> bool:
    """Whether an item may be part of a segment: it launches, and nothing of it is decided anew in each run."""
    kind, item = plan.kinds[position], plan.item(position)
    options = item.options
    plain = not options.retries and options.timeout is None and position not in plan.groups
    return kind >= 3 and kind % 3 == LAUNCH and plain


def _stages(plan: Plan) -> list[int]:
    """Per position the segment that it belongs to, counted per path; -1 for what cannot be captured.

    An item outside comes one stage after every item inside that it depends on, so a path that leaves a segment never
    comes back into it, and each segment can wait for all that it needs before it begins.
    """
    offsets, sources = plan.waits.predecessors()
    starts, flat = offsets.tolist(), sources.tolist()
    inside = [_capturable(plan, position) for position in range(len(plan.kinds))]
    stage = [0] * len(plan.kinds)
    for position, kind in enumerate(plan.kinds):
        for source in flat[starts[position] : starts[position + 1]]:
            together = inside[source] and inside[position] and plan.kinds[source] == kind
            leaves = inside[source] and not together
            stage[position] = max(stage[position], stage[source] + leaves)
    return [number if inside[position] else -1 for position, number in enumerate(stage)]


def _contracted(plan: Plan, groups: list[list[int]]) -> Plan:
    count = len(plan.kinds)
    node = list(range(count))  # of each position; a segment is the node of its first member
    for group in groups:
        for position in group:
            node[position] = group[0]
    nodes = sorted(set(node))
    number = {each: index for index, each in enumerate(nodes)}
    pairs = {
        (number[node[source]], number[node[target]])
        for source, target in zip(plan.waits.source.tolist(), plan.waits.target.tolist(), strict=True)
        if node[source] != node[target]
    }
    order = _topological(len(nodes), pairs)
    place = {index: new for new, index in enumerate(order)}
    to_new = [place[number[node[position]]] for position in range(count)]
    source = [place[before] for before, _ in pairs]
    target = [place[after] for _, after in pairs]
    waits = Edges.of(len(nodes), source, target)
    by_node = {group[0]: group for group in groups}
    outside = _outside(plan, by_node)
    work: list[Any] = []
    calls, getters, outs, kinds, cost, known, touched = [], [], [], [], [], [], []
    junk = len(plan.template) - 1
    for new, index in enumerate(order):
        position = nodes[index]
        members = by_node.get(position)
        kinds.append(plan.kinds[position])
        positions = members or [position]
        cost.append(float(plan.cost[positions].sum()))
        known.append(float(plan.known_cost[positions].max()))  # they may run side by side: a bound knows no more
        touched.append(sorted({slot for each in positions for slot in _slots(plan, each)}))
        if members is None:
            work.append(plan.item(position))
            calls.append(plan.calls[position])
            getters.append(plan.getters[position])
            outs.append(plan.outs[position])
        else:
            item = _segment(plan, members, new, outside)
            work.append(item)
            calls.append(item.segment)
            getters.append(_values)
            outs.append(junk)
    access_offsets = np.concatenate(([0], np.cumsum([len(slots) for slots in touched]))).astype(np.int64)
    access_slots = np.array([slot for slots in touched for slot in slots], dtype=np.int64)
    output_positions = {
        name: sorted({to_new[writer] for writer in writers}) for name, writers in plan.output_positions.items()
    }
    return replace(
        plan,
        straight=False,
        chain=False,
        work=tuple(work),
        edges=waits,
        order=np.arange(len(nodes), dtype=np.int64),
        waits=waits,
        accesses=(access_offsets, access_slots),
        output_positions=output_positions,
        groups={to_new[position]: names for position, names in plan.groups.items()},
        on_device=device_part(
            work, kinds, np.array(cost), waits, plan.streams[0], access_offsets, access_slots, plan.expansion
        ),
        calls=calls,
        getters=getters,
        outs=outs,
        kinds=kinds,
        cost=np.array(cost),
        known_cost=np.array(known),
    )


def _values(values: Values) -> tuple[Values]:
    return (values,)


def _slots(plan: Plan, position: int) -> list[int]:
    return list(plan.touched[position])


def _topological(count: int, pairs: set[tuple[int, int]]) -> list[int]:
    """The most urgent node first among those whose predecessors are all there (Kahn 1962)."""
    after: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for before, behind in pairs:
        after[before].append(behind)
        waiting[behind] += 1
    ready = [each for each in range(count) if not waiting[each]]
    heapify(ready)
    order = []
    while ready:
        each = heappop(ready)
        order.append(each)
        for behind in after[each]:
            waiting[behind] -= 1
            if not waiting[behind]:
                heappush(ready, behind)
    assert len(order) == count, "segments that wait for each other"
    return order


def _outside(plan: Plan, groups: dict[int, list[int]]) -> dict[int, set[int]]:
    """Per slot, the nodes that use it, a segment counting as one."""
    users: dict[int, set[int]] = {}
    node = {position: first for first, group in groups.items() for position in group}
    for position in range(len(plan.kinds)):
        for slot in _slots(plan, position):
            users.setdefault(slot, set()).add(node.get(position, position))
    return users


def _segment(plan: Plan, group: list[int], index: int, users: dict[int, set[int]]) -> SegmentItem:
    offsets, sources = plan.waits.predecessors()
    step_of = {position: step for step, position in enumerate(group)}
    part = plan.on_device
    assert part is not None
    steps, inputs, written, new = [], [], [], set()
    for position in group:
        fresh = []
        for slot, mode in _modes(plan, position).items():
            own = slot in new
            if not own and mode == WRITE and _makes(plan, position, slot):
                new.add(slot)
                fresh.append(slot)
            elif not own:
                if slot not in inputs:
                    inputs.append(slot)
                if mode & WRITE and slot not in written:
                    written.append(slot)
        behind = tuple(
            step_of[source]
            for source in sources[offsets[position] : offsets[position + 1]].tolist()
            if source in step_of
        )
        name = plan.item(position).name
        steps.append(Step(name, _step(plan, position), part.lanes[position], behind, tuple(fresh)))
    results = [slot for slot in sorted(new) if len(users[slot]) > 1 or plan.keep[slot]]
    items = [plan.item(position) for position in group]
    return SegmentItem(
        index=index,
        name=f"{items[0].name} … {items[-1].name}",
        site=items[0].site,
        members=tuple(item.name for item in items),
        segment=Segment(steps, inputs, written, results, plan.expansion.slot_count),
        options=Options(priority=max(item.options.priority for item in items)),
    )


def _modes(plan: Plan, position: int) -> dict[int, int]:
    """How an item uses each slot, in all its accesses together."""
    expansion, index = plan.expansion, int(plan.order[position])
    modes: dict[int, int] = {}
    for access in range(expansion.offsets[index], expansion.offsets[index + 1]):
        slot = int(expansion.slots_accessed[access])
        modes[slot] = modes.get(slot, 0) | int(expansion.modes[access])
    return modes


def _makes(plan: Plan, position: int, slot: int) -> bool:
    """Whether the item puts a new value in the slot, rather than writing into the one there."""
    item = plan.item(position)
    if isinstance(item, Transfer):
        return True
    place = plan.kinds[position] // 3
    return any(plan.expansion.slot(place, output.index) == slot for output in item.outputs)


def _step(plan: Plan, position: int) -> Callable[[Values], None]:
    item = plan.item(position)
    if isinstance(item, Transfer):
        buffer, slot = item.buffer, item.target_slot
        assert buffer is not None
        assert buffer.kind == BUFFER or not item.filled
        return lambda values: values.__setitem__(slot, _allocated(buffer, item.filled))
    if item.kind is BARRIER:
        return lambda values: None
    call, getter, out = plan.calls[position], plan.getters[position], plan.outs[position]

    def step(values: Values) -> None:
        values[out] = call(*getter(values))

    return step


def _allocated(buffer: Buffer, filled: bool) -> Any:
    if filled and buffer.value is not None:
        return cupy().full(buffer.shape, buffer.value, buffer.dtype)
    return cupy().empty(buffer.shape, buffer.dtype)
