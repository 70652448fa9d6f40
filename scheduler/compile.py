"""Compile a program for given devices: items placed and ordered, waits and value slots laid out in flat lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from plait.devices import Device
from plait.graph import CALL, CONSTANT, INPUT, RESOURCE, BufferSlice, Edges, Program
from plait.scheduler.assign import assign
from plait.scheduler.bind import Binder
from plait.scheduler.calls import bind_calls, is_async_callable
from plait.scheduler.costing import by_option, filled, known_seconds, touched_bytes
from plait.scheduler.device_plan import device_part
from plait.scheduler.expand import HOST, Expansion, expand, unexpanded
from plait.scheduler.links import links
from plait.scheduler.memory.order import memory_order
from plait.scheduler.place import Places
from plait.scheduler.plan import Plan
from plait.scheduler.policies import Policy, Problem, find
from plait.scheduler.policies.cost_model import CostModel
from plait.scheduler.urgency import by_priority, by_urgency, spread_urgency

IntArray = npt.NDArray[np.int64]


def compile_plan(
    program: Program,
    devices: Sequence[Device],
    streams: tuple[int, int],
    policy: str | Policy,
    model: CostModel | None = None,
    limits: Sequence[int | None] | None = None,
) -> Plan:
    """Lay ``program`` over the host's ``streams`` (compute, copy) and the devices.

    Each device has as many compute streams as the host. ``model`` is asked for costs that items do not give. Under
    ``limits`` (bytes per place) items are put in an order that moves few bytes, if the policy's moves more. PlanError
    names what cannot be placed.
    """
    chosen = find(policy)
    places = Places(devices)
    nbytes = () if model is None else touched_bytes(program)
    expansion, placed = _expansion(program, places, chosen, streams[0], model, nbytes)
    items, edges = expansion.items, expansion.edges
    count = len(items)
    known = known_seconds(items, "host", model, nbytes)
    there = np.array(expansion.places, dtype=np.int64)
    of_kind: dict[str, list[int]] = {}
    for place in np.unique(there[there > 0]).tolist():
        of_kind.setdefault(places.devices[place - 1].platform, []).append(place)
    for kind, alike in of_kind.items():
        mine = np.isin(there, alike)
        known[mine] = known_seconds(items, kind, model, nbytes)[mine]
    cost = filled(known)
    urgency = chosen.order(Problem.of(cost[:, None], edges)) if placed is None else spread_urgency(placed, expansion)
    order = by_urgency(items, edges, urgency)
    if limits is not None and any(limit is not None for limit in limits):
        order = by_priority(memory_order(program, expansion, order, limits), items, edges)
    positions = np.empty(count, dtype=np.int64)
    positions[order] = np.arange(count)
    waits = _renumbered(edges, positions)
    binder = Binder(program, expansion.slot_count, expansion.literal_values)
    kinds, calls, getters, outs = bind_calls(binder, expansion, order.tolist(), places)
    slots = len(binder.template)
    binder.template += [None, None]
    keep = np.zeros(slots + 2, dtype=bool)
    keep[expansion.slot_count :] = True
    output_positions = _outputs(program, expansion, positions, keep)
    for buffer in program.declared:
        if buffer.kind in (CONSTANT, RESOURCE):
            keep[buffer.index] = True
    access_offsets, access_slots = _accesses(expansion, order)
    group_limits = program.group_limits
    groups = {
        position: limited
        for position, index in enumerate(order.tolist() if group_limits else [])
        if (limited := tuple(name for name in items[index].options.groups if group_limits[name] is not None))
    }
    on_device = None
    if expansion.places:
        by_position = [items[index] for index in order.tolist()]
        on_device = device_part(
            by_position, kinds, cost[order], waits, streams[0], access_offsets, access_slots, expansion
        )
    return Plan(
        program=program,
        work=items,
        edges=edges,
        device="host",
        places=places.names,
        policy=chosen.name,
        streams=streams,
        order=order,
        kinds=kinds,
        cost=cost[order],
        known_cost=np.nan_to_num(known, nan=0.0)[order],
        waits=waits,
        calls=calls,
        getters=getters,
        outs=[slots + 1 if out < 0 else out for out in outs],
        template=binder.template,
        accesses=(access_offsets, access_slots),
        keep=keep,
        output_positions=output_positions,
        groups=groups,
        host_made=_wanted(expansion.host_made, access_slots, keep),
        touched_on_host=_touched_on_host(program, expansion),
        straight=not groups and not any(kinds),
        chain=int(np.count_nonzero(waits.target - waits.source == 1)) >= count - 1,
        on_device=on_device,
        expansion=expansion,
    )


def _expansion(
    program: Program,
    places: Places,
    policy: Policy,
    lanes: int,
    model: CostModel | None,
    nbytes: Sequence[int | None],
) -> tuple[Expansion, npt.NDArray[np.float64] | None]:
    """The program as it is if all its items run on the host, else with the transfers that devices need; and the urgency
    by program item that came with the placement, if there was a choice."""
    items = program.items
    if places.host is not None and not places.devices and not any(by_option(items, lambda options: options.device)):
        return unexpanded(program), None
    asynchronous = [item.kind is CALL and is_async_callable(item.function) for item in items]
    found = assign(program, places, policy, lambda item: asynchronous[item.index], lanes, model, nbytes)
    if not any(found.places):
        return unexpanded(program), found.urgency
    bandwidth = links(places.devices)[0] if len(places.devices) > 1 else None
    return expand(program, found.places, places.names, bandwidth), found.urgency


def _touched_on_host(program: Program, expansion: Expansion) -> frozenset[int]:
    """The inputs and constants that are read as NumPy arrays: by items on the host, or as outputs."""
    touched: set[int] = set()
    if expansion.places:
        on_host = np.repeat(np.array(expansion.places) == HOST, np.diff(expansion.offsets))
        touched.update(expansion.slots_accessed[on_host].tolist())
        for value in program.outputs.values():
            touched.add(value.buffer.index if isinstance(value, BufferSlice) else value.index)
    given = (buffer.index for buffer in program.declared if buffer.kind in (CONSTANT, INPUT))
    return frozenset(index for index in given if index in touched)


def _renumbered(edges: Edges, positions: IntArray) -> Edges:
    source, target = positions[edges.source], positions[edges.target]
    assert bool(np.all(source < target)), "an order that breaks an edge"
    by = np.lexsort((source, target))
    return Edges(edges.count, source[by].astype(np.int32), target[by].astype(np.int32), edges.kinds[by])


def _outputs(
    program: Program, expansion: Expansion, positions: IntArray, keep: npt.NDArray[np.bool_]
) -> dict[str, list[int]]:
    """Per output, the positions of the items after which its buffer holds its final value; marks it as kept."""
    writes = np.flatnonzero(expansion.modes > 1)
    writers = positions[np.searchsorted(expansion.offsets, writes, side="right") - 1]
    by = np.argsort(expansion.slots_accessed[writes], kind="stable")
    buffers, writers = expansion.slots_accessed[writes][by], writers[by]
    result = {}
    for name, value in program.outputs.items():
        index = value.buffer.index if isinstance(value, BufferSlice) else value.index
        keep[index] = True
        start, end = np.searchsorted(buffers, [index, index + 1])
        result[name] = sorted(set(writers[start:end].tolist()))
    return result


def _accesses(expansion: Expansion, order: IntArray) -> tuple[IntArray, IntArray]:
    """Per position, the distinct buffer slots that its item touches, as offsets and one flat array."""
    count, slots = len(order), max(1, expansion.slot_count)
    positions = np.empty(count, dtype=np.int64)
    positions[order] = np.arange(count)
    per_access = np.repeat(positions, np.diff(expansion.offsets))
    pairs = np.sort(per_access * slots + expansion.slots_accessed)
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    offsets = np.searchsorted(pairs, np.arange(count + 1) * slots)
    return offsets.astype(np.int64), pairs % slots


def _wanted(host_made: frozenset[int], slots: IntArray, keep: npt.NDArray[np.bool_]) -> frozenset[int]:
    """Those of a run's own buffers that an item uses or that are outputs: the others need not be made."""
    made = np.array(sorted(host_made), dtype=np.int64)
    return frozenset(made[np.isin(made, slots) | keep[made]].tolist())
