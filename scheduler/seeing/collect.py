"""From a run's flat stamps to its trace."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plait.devices import usable_cores
from plait.graph import BUFFER, COPY, FILL, WorkItem
from plait.graph.graph import RECORDED_EVERY
from plait.scheduler.expand import Transfer
from plait.scheduler.kinds import LAUNCH
from plait.scheduler.trace import DETAIL, HELD, RECORD, UNKNOWN, Limit, Trace

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan
    from plait.scheduler.state import RunState

Longs = npt.NDArray[np.int64]


def build_trace(plan: Plan, state: RunState, streams: tuple[str, ...]) -> Trace:
    """The trace of a run that is over; what never ran has no record."""
    start, end = _stamps(state)
    begin = state.begin_ns
    ran = np.flatnonzero(start)
    ran = ran[np.argsort(start[ran], kind="stable")]
    records = np.empty(len(ran), dtype=RECORD)
    records["item"] = plan.order[ran]
    records["stream"] = np.frombuffer(state.lanes, dtype=np.uint16)[ran]
    kinds = np.array(plan.kinds, dtype=np.int64)[ran]
    records["kind"] = np.where(kinds < 3, kinds, kinds % 3 != LAUNCH)
    records["start_ns"], records["end_ns"] = start[ran] - begin, end[ran] - begin
    sizes = np.array(state.sizes, dtype=np.int64)
    held, holders = _held(plan, end, sizes, begin, state.end_ns - begin)
    return Trace(
        records,
        streams,
        plan.device,
        tuple(item.name for item in plan.work),
        state.end_ns - begin,
        graph=plan.program.graph.name,
        sites=_sites(plan),
        edges=plan.edges,
        details=_details(plan, state, ran, records, sizes),
        held=held,
        holders=holders,
        limits=_limits(plan),
        stalls=tuple((low - begin, high - begin, nbytes) for low, high, nbytes in state.stalls),
        epoch_ns=0 if state.simulated_cores else time.time_ns() - time.perf_counter_ns() + begin,
        cores=state.simulated_cores or usable_cores(),
        peak_bytes=state.memory.peak[0] if state.memory is not None and state.memory.limited[0] else None,
    )


def _stamps(state: RunState) -> tuple[Longs, Longs]:
    """Start and end by position, 0 where an item did not run."""
    start, end = np.array(state.started, dtype=np.int64), np.array(state.finished, dtype=np.int64)
    for first, lane, stamps in state.stamps_straight:
        last = first + len(stamps) - 1
        start[first:last], end[first:last] = stamps[:-1], stamps[1:]
        np.frombuffer(state.lanes, dtype=np.uint16)[first:last] = lane
    return start, end


def _sites(plan: Plan) -> tuple[str, ...]:
    known: dict[int, str] = {}
    graph, sites = plan.program.graph, []
    for item in plan.work:
        index = getattr(item, "site_index", None)
        if index is None:
            sites.append(item.site)
        else:
            if index not in known:
                known[index] = graph.site(index)
            sites.append(known[index])
    return tuple(sites)


def _details(plan: Plan, state: RunState, ran: Longs, records: npt.NDArray[Any], sizes: Longs) -> npt.NDArray[Any]:
    details = np.empty(len(ran), dtype=DETAIL)
    recorded = np.array(plan.program.graph.recorded_ns, dtype=np.int64)
    index = np.array([item.index if isinstance(item, WorkItem) else -1 for item in plan.work], dtype=np.int64)
    index = index[records["item"]]
    details["recorded_ns"] = UNKNOWN
    known = (index >= 0) & (not state.simulated_cores)
    details["recorded_ns"][known] = recorded[index[known] // RECORDED_EVERY] - state.begin_ns
    details["enqueued_ns"] = records["start_ns"]
    details["nbytes"] = [_nbytes(plan, position, sizes) for position in ran.tolist()]
    if state.enqueued:
        at = np.array(state.enqueued, dtype=np.int64)
        told = at[ran] > 0
        details["enqueued_ns"][told] = at[ran][told] - state.begin_ns
    return details


def _nbytes(plan: Plan, position: int, sizes: Longs) -> int:
    """Bytes of an item's results, or of what a copy or fill moved, as far as they are known."""
    item = plan.item(position)
    if isinstance(item, Transfer):
        return int(sizes[item.target_slot])
    if item.kind in (COPY, FILL):
        target = getattr(item.args[0], "target", item.args[0])
        return target.nbytes or 0
    place = plan.kinds[position] // 3
    return sum(int(sizes[plan.expansion.slot(place, output.index)]) for output in item.outputs)


def _limits(plan: Plan) -> tuple[Limit, ...]:
    members: dict[str, list[int]] = {}
    for position, names in plan.groups.items():
        for name in names:
            members.setdefault(name, []).append(int(plan.order[position]))
    most = plan.program.group_limits
    return tuple(Limit(name, most[name] or 0, tuple(sorted(items))) for name, items in members.items())


def _held(plan: Plan, end: Longs, sizes: Longs, begin: int, makespan: int) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """When each of the run's arrays was there, replayed from the stamps by position and the sizes by slot.

    A slot counts from the end of the first item that touches it (a run's own buffers: from the start) to the end of
    the last one; a slot that the run keeps counts to the end.
    """
    offsets, slots = plan.accesses
    ends = np.repeat(end, np.diff(offsets))
    ran = ends > 0
    slots, ends = slots[ran], ends[ran] - begin
    first = np.full(len(sizes), makespan, dtype=np.int64)
    last = np.zeros(len(sizes), dtype=np.int64)
    np.minimum.at(first, slots, ends)
    np.maximum.at(last, slots, ends)
    for buffer in plan.program.declared:
        if buffer.kind == BUFFER:
            first[buffer.index] = 0
    last[plan.keep] = makespan
    there = np.flatnonzero(sizes[:-2])  # the last two are the run itself, and what nobody reads
    held = np.empty(len(there), dtype=HELD)
    held["start_ns"], held["end_ns"], held["nbytes"] = first[there], last[there], sizes[there]
    held["holder"] = np.arange(len(there))
    replicas = {
        slot: (buffer, place) for place, slots in enumerate(plan.expansion.slots) for buffer, slot in slots.items()
    }
    return held, tuple(_holder(plan, slot, replicas.get(slot)) for slot in there.tolist())


def _holder(plan: Plan, slot: int, replica: tuple[int, int] | None) -> str:
    """A buffer's name, with the device if its replica is on one (``replica``: buffer and place)."""
    count, graph = plan.program.buffer_count, plan.program.graph
    if slot < count:
        return graph.buffer_at(slot).name
    if replica is None:
        return f"plain argument {slot - count}"
    buffer, place = replica
    name = graph.buffer_at(buffer).name if buffer < count else f"plain argument {buffer - count}"
    return f"{name} on {plan.places[place]}"
