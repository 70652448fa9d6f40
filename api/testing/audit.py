"""What a finished simulated run must show whatever its order: nothing overlapped, urgency kept, all given back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from plait.graph import BARRIER
from plait.scheduler import Run, Scheduler
from plait.scheduler.expand import HOST, Transfer
from plait.scheduler.kinds import LAUNCH
from plait.scheduler.state import DONE
from plait.scheduler.tail import WINDOW
from plait.testing.checker import conflicts

_Begun = tuple[int, int, int, int, int, str]  # priority, its run, place in its order, ready, begun (ns), its name


def audit(runs: Sequence[Run], late_ns: Sequence[int], *, limited: bool) -> str | None:
    """What is wrong with runs that have ended well, side by side on one scheduler; None if nothing is.

    ``late_ns`` is by place how much later than it happens the host hears of an item's end. What waits for memory
    (``limited``) or for room in a group may be overtaken, so the order of such is not looked at.
    """
    return (
        next(filter(None, map(_uncounted, runs)), None)
        or next(filter(None, map(overlapping, runs)), None)
        or next(filter(None, map(_crowded, runs)), None)
        or (None if limited else _misordered(runs, late_ns))
        or _overtaken(runs)
    )


def _uncounted(run: Run) -> str | None:
    """The first item without its times, or a count of the run that does not come out."""
    state = run._state
    for position in range(len(run.plan.kinds)):
        name, began, ended = run.plan.item(position).name, state.started[position], state.finished[position]
        if state.status[position] != DONE:
            return f"the run ended well without {name}"
        if not state.begin_ns <= began <= ended <= state.end_ns:
            return f"{name} is said to have run from {began} to {ended} ns, in a run from {state.begin_ns} ns on"
    used = run.plan.accesses[1].tolist()
    kept = [slot for slot in used if state.uses[slot] != int(run.plan.keep[slot])]
    if kept or any(state.pending) or state.active or state.settled != len(run.plan.kinds):
        return f"counts are off at the end: {len(kept)} values, {state.active} items in flight, {state.settled} done"
    return None


def overlapping(run: Run) -> str | None:
    """The first item that began before one had ended that it conflicts with; None if there is none."""
    state, plan = run._state, run.plan
    for first, second in conflicts(plan):
        if state.started[second] < state.finished[first]:
            return f"{plan.item(second).name} began before {plan.item(first).name} had ended, and must follow it"
    return None


def _crowded(run: Run) -> str | None:
    """The first group that had more in flight at once than it may."""
    state, limits = run._state, run.plan.program.group_limits
    for name, most in limits.items():
        members = [position for position, names in run.plan.groups.items() if name in names]
        changes = sorted(
            (moment, step)
            for position in members
            for moment, step in ((state.started[position], 1), (state.finished[position], -1))
            if state.started[position] < state.finished[position]
        )
        inside = 0
        for _, step in changes:
            inside += step
            if most is not None and inside > most:
                return f"group {name!r} had {inside} items in flight, and its limit is {most}"
    return None


def _misordered(runs: Sequence[Run], late_ns: Sequence[int]) -> str | None:
    """An item that was served, by the host or by a lane of a device, while a more urgent one was ready."""
    lanes: dict[int, list[_Begun]] = {}
    for number, run in enumerate(runs):
        state, plan = run._state, run.plan
        ready, part = _next_in_stream(run, _ready(run, late_ns)), plan.on_device
        for position, kind in enumerate(plan.kinds):
            if kind == 2 or position in plan.groups:
                continue
            begun = state.started[position] if part is None or kind < 3 else state.enqueued[position]
            name = plan.item(position).name
            lanes.setdefault(kind, []).append((state.priority, number, position, ready[position], begun, name))
    for kind, items in lanes.items():
        if kind > 2 and len(items) > WINDOW:
            continue  # more than a stream takes at once: an urgent one may have to wait for room
        found = _first_overtaken(items)
        if found is not None:
            return f"{found[0]} was served before {found[1]}, which is more urgent"
    return None


def _next_in_stream(run: Run, ready: list[int]) -> list[int]:
    """The same, not before the item that the plan has before it in its stream was enqueued; what overtook that one, as
    it may where the stream had nothing else to do, counts as ready when it was."""
    part, enqueued = run.plan.on_device, run._state.enqueued
    if part is None:
        return ready
    found = ready.copy()
    for position, before in enumerate(part.previous):
        if before >= 0:
            found[position] = max(ready[position], min(enqueued[before] or enqueued[position], enqueued[position]))
    return found


def _ready(run: Run, late_ns: Sequence[int]) -> list[int]:
    """By position, when all was told that the item waits for, in nanoseconds of virtual time."""
    state, plan, part = run._state, run.plan, run.plan.on_device
    offsets, sources = plan.waits.predecessors()
    starts, flat = offsets.tolist(), sources.tolist()
    ready, heard = list[int](), list[int]()
    for position, kind in enumerate(plan.kinds):
        before = flat[starts[position] : starts[position + 1]]
        behind = () if part is None else part.before[position]
        told = [state.enqueued[each] if each in behind else heard[each] for each in before]
        ready.append(max(told, default=state.begin_ns))
        late = late_ns[kind // 3] if kind >= 3 else 0
        heard.append(max(state.finished[position] + late, *(heard[each] for each in behind), 0))
    return ready


def _overtaken(runs: Sequence[Run]) -> str | None:
    """An operation that an engine of a device took while one of a more urgent stream asked for it."""
    engines: dict[tuple[int, int], list[_Begun]] = {}
    streams: dict[int, list[tuple[int, Run, int]]] = {}
    for run in runs:
        flight = run._state.flight
        for position, kind in enumerate(run.plan.kinds):
            if kind >= 3 and flight is not None:
                streams.setdefault(flight.stream[position], []).append((flight.number[position], run, position))
    ahead: dict[tuple[Run, int], int] = {}
    for ops in streams.values():
        ops.sort(key=lambda each: each[0])
        for (_, run, position), (_, after, behind) in pairwise(ops):
            ahead[after, behind] = run._state.finished[position]
    for run in runs:
        state, plan, part = run._state, run.plan, run.plan.on_device
        if part is None:
            continue
        for position, kind in enumerate(plan.kinds):
            item = plan.item(position)
            nothing = item.kind == BARRIER or (isinstance(item, Transfer) and item.source is None)
            if kind < 3 or nothing:
                continue
            asked = max(
                state.enqueued[position],
                ahead.get((run, position), 0),
                *(state.finished[each] for each in part.before[position]),
                0,
            )
            engine = kind, min(part.lanes[position], 1) if kind % 3 != LAUNCH else 0
            priority = state.priority + item.options.priority
            engines.setdefault(engine, []).append((priority, 0, 0, asked, state.started[position], item.name))
    for items in engines.values():
        found = _first_overtaken(items)
        if found is not None:
            return f"{found[0]} had a device's engine before {found[1]}, whose stream is more urgent"
    return None


def _first_overtaken(items: list[_Begun]) -> tuple[str, str] | None:
    """The names of an item and of a more urgent one, ready before it, that began after it."""
    for priority, run, position, _, begun, name in items:
        for rank, other, place, ready, then, urgent in items:
            if ready < begun < then and (rank > priority or (rank == priority and other == run and place < position)):
                return name, urgent
    return None


def left_behind(scheduler: Scheduler) -> str | None:
    """What is held or reserved when all runs have ended and nobody has their outputs; None if nothing is."""
    assert scheduler.simulation is not None
    for place, device in enumerate(scheduler.simulation.devices):
        if place != HOST and device.memory.in_use and device.error is None:
            return f"{device.memory.in_use} bytes of {device.name} are still in use when all runs have ended"
    arbiter = scheduler.dispatcher.memory
    if arbiter is not None:
        if arbiter.turns.claims:
            return f"{len(arbiter.turns.claims)} items wait for memory when all runs have ended"
        for space in arbiter.spaces:
            left = space.held, space.reserved, space.leased, space.moving
            if any(left):
                return f"of {space.name}, held, reserved, leased and moving are {left} when all runs have ended"
    return None


def beyond_limits(scheduler: Scheduler, slack: int) -> str | None:
    """A space in which more was in use than its limit and ``slack`` bytes; None if there is none."""
    assert scheduler.simulation is not None
    arbiter = scheduler.dispatcher.memory
    spaces = () if arbiter is None else arbiter.spaces
    for place, (space, device) in enumerate(zip(spaces, scheduler.simulation.devices, strict=False)):
        if place != HOST and space.limit is not None and device.memory.peak > space.limit + slack:
            return f"{device.memory.peak} bytes of {space.name} were in use at once, and its limit is {space.limit}"
    return None
