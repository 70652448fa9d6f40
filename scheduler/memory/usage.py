"""How many bytes a plan needs in each memory space, told before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from plait.errors import PlanError
from plait.graph import BUFFER, CONSTANT, INPUT, RESOURCE, Buffer, BufferSlice
from plait.scheduler.expand import HOST
from plait.scheduler.memory.part import memory_part

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of one memory space. ``argument``: what the caller gives (inputs, constants) there; ``output``: what it
    gets; ``temporary``: everything else that the plan makes there; ``alias``: outputs that are arguments changed in
    place or handed through, counted in ``argument`` too.

    ``peak`` is the most that the run holds at once when items run one after the other in the plan's order, without the
    caller's own arrays; a run on several streams may hold more, unless a ``memory_limit`` holds it back. ``unknown``
    names the buffers whose size is not known before they are computed: with any, all figures count the others alone.
    ``largest`` is the most that one item needs at once, and ``largest_item`` its name.
    """

    argument: int
    output: int
    alias: int
    temporary: int
    peak: int
    largest: int
    largest_item: str | None
    unknown: tuple[str, ...]


def plan_memory(plan: Plan) -> Mapping[str, MemoryUse]:
    """Per memory space (``"host"``, ``"cuda:0"``): what the plan needs there."""
    part = memory_part(plan)
    return {name: _use(plan, place) for place, name in enumerate(plan.places) if place == 0 or part.at[place]}


def _use(plan: Plan, place: int) -> MemoryUse:
    part, program = memory_part(plan), plan.program
    given = {each.index for each in program.declared if each.kind in (INPUT, CONSTANT)}
    given |= set(plan.expansion.literals.values())
    mutated = program.mutated
    outputs = {_buffer_index(value) for value in program.outputs.values()}
    used = np.diff(np.asarray(part.users.offsets)) > 0
    slots = np.flatnonzero((np.asarray(part.place) == place) & used).tolist()
    slots += [slot for slot in outputs if place == 0 and not used[slot]]
    size = {slot: max(0, part.declared[slot]) for slot in slots}
    resources = {each.index for each in program.declared if each.kind == RESOURCE}
    unknown = [slot for slot in slots if part.declared[slot] < 0 and part.buffer[slot] not in resources]
    callers = {slot for slot in slots if place == 0 and slot in given and slot not in mutated}
    argument = sum(size[slot] for slot in slots if place == 0 and slot in given)
    output = sum(size[slot] for slot in slots if place == 0 and slot in outputs)
    alias = sum(size[slot] for slot in slots if place == 0 and slot in outputs and slot in given)
    ours = [slot for slot in slots if slot not in callers]
    temporary = sum(size[slot] for slot in ours if not (place == 0 and slot in outputs))
    largest, largest_at = _largest(plan)[place]
    return MemoryUse(
        argument=argument,
        output=output,
        alias=alias,
        temporary=temporary,
        peak=_peak(plan, ours, size),
        largest=largest,
        largest_item=plan.item(largest_at).name if largest_at >= 0 else None,
        unknown=tuple(program.graph.buffer_at(part.buffer[slot]).name for slot in unknown[:20]),
    )


def _buffer_index(value: Buffer | BufferSlice) -> int:
    return value.buffer.index if isinstance(value, BufferSlice) else value.index


def _peak(plan: Plan, slots: list[int], size: dict[int, int]) -> int:
    """Bytes held at most: from the item that makes a slot (a run's own buffers: the start) to its last user."""
    part, count = memory_part(plan), len(plan.calls)
    at_start = {each.index for each in plan.program.declared if each.kind == BUFFER} & plan.host_made
    at_start |= {each.index for each in plan.program.declared if each.kind in (INPUT, CONSTANT)}
    change = np.zeros(count + 2, dtype=np.int64)
    for slot in slots:
        users = part.users[slot]
        first = 0 if slot in at_start or not users else users[0]
        last = count if plan.keep[slot] or not users else users[-1]
        change[first] += size[slot]
        change[last + 1] -= size[slot]
    return int(np.cumsum(change).max(initial=0))


def _largest(plan: Plan) -> list[tuple[int, int]]:
    """Per place the most bytes that one item uses and makes there at once, and its position; -1 where none does."""
    part, program = memory_part(plan), plan.program
    place, size = np.asarray(part.place), np.maximum(np.asarray(part.declared), 0)
    given = {each.index for each in program.declared if each.kind in (INPUT, CONSTANT)}
    given |= set(plan.expansion.literals.values())
    callers = [slot for slot in given if place[slot] == HOST and slot not in program.mutated]
    size[callers] = 0
    count, rows = len(plan.calls), (part.touched, part.made)
    slots = np.concatenate([each.numbers for each in rows])
    at = np.concatenate([np.repeat(np.arange(count), np.diff(each.offsets)) for each in rows])
    where, found = place[slots], []
    for number in range(len(plan.places)):
        there = where == number
        total = np.bincount(at[there], size[slots[there]], count)
        position = int(total.argmax()) if count else -1
        found.append((int(total[position]), position) if total.any() else (0, -1))
    return found


def check_working_sets(plan: Plan, limits: list[int | None]) -> None:
    """PlanError, with the numbers, if an item alone needs more than a space may hold."""
    largest = _largest(plan)
    for place, limit in enumerate(limits[: len(plan.places)]):
        needs, position = largest[place]
        if limit is not None and needs > limit:
            item = plan.item(position)
            part = memory_part(plan)
            parts = [
                f"{plan.program.graph.buffer_at(part.buffer[slot]).name!r} {part.declared[slot]}"
                for slot in (*part.touched[position], *part.made[position])
                if part.place[slot] == place and part.declared[slot] > 0
            ]
            raise PlanError(
                f"item {item.name!r} (recorded at {item.site}) needs {needs} bytes of {plan.places[place]} at "
                f"once, and its memory_limit is {limit}: {', '.join(parts[:8])}; raise the limit or split the item"
            )
