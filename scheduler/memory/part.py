"""What a plan says of memory before it runs: per position what it makes, changes and touches, per slot who uses it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from plait.graph import CALL, CONSTANT, INPUT, RESOURCE
from plait.graph.hazards import WRITE
from plait.scheduler.expand import HOST, Transfer
from plait.scheduler.rows import Rows

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan


@dataclass(frozen=True, eq=False)
class MemoryPart:
    """Flat facts: ``place[s]`` is the memory space of slot s, and ``users(s)`` the positions that use it, ascending.

    Of position p: ``made(p)`` are the slots that it gives a new value, ``changed(p)`` those whose bytes it changes,
    ``touched(p)`` all that it uses less those that it makes, ``places[p]`` their spaces. ``at[k]`` are the positions
    that touch space k, ascending. ``declared[s]`` is slot s's size or a bound of it, -1 where nothing is known, and
    ``buffer[s]`` the buffer of which it is a replica.
    """

    place: array[int]
    places: list[tuple[int, ...]]
    at: list[array[int]]
    declared: array[int]
    buffer: array[int]
    made: Rows
    changed: Rows
    touched: Rows
    users: Rows


_PARTS: WeakKeyDictionary[Plan, MemoryPart] = WeakKeyDictionary()


def memory_part(plan: Plan) -> MemoryPart:
    """The facts of a plan, made when first asked for."""
    part = _PARTS.get(plan)
    if part is None:
        part = _PARTS[plan] = _part(plan)
    return part


def _part(plan: Plan) -> MemoryPart:
    expansion, program = plan.expansion, plan.program
    slots = len(plan.keep)
    place, buffer = array("q", [HOST]) * slots, array("q", range(slots))
    for number, of_buffer in enumerate(expansion.slots):
        for index, slot in of_buffer.items():
            if number != HOST:
                place[slot], buffer[slot] = number, index
    declared = _declared(plan, buffer)
    starts, modes, accessed = expansion.offsets, expansion.modes, expansion.slots_accessed
    resources = {each.index for each in program.declared if each.kind == RESOURCE}
    places: list[tuple[int, ...]] = []
    at = [array("q") for _ in plan.places]
    same: dict[tuple[int, ...], tuple[int, ...]] = {}  # a tuple for all positions whose spaces are the same
    made, changed, used = (Rows.of(()) for _ in range(3))
    for position, index in enumerate(plan.order.tolist()):
        item = expansion.items[index]
        mine = [slot for slot in plan.touched[position] if slot not in resources]
        there = plan.kinds[position] // 3
        if isinstance(item, Transfer):
            new: tuple[int, ...] = (item.target_slot,)
        elif item.kind is CALL:
            new = tuple(expansion.slot(there, output.index) for output in item.outputs)
        else:
            new = ()
        span = slice(starts[index], starts[index + 1])
        written = accessed[span][modes[span] & WRITE != 0].tolist()
        made.numbers.extend(new)
        changed.numbers.extend(slot for slot in dict.fromkeys(written) if slot not in new and slot not in resources)
        used.numbers.extend(slot for slot in mine if slot not in new)
        for rows in (made, changed, used):
            rows.offsets.append(len(rows.numbers))
        spaces = tuple(sorted({place[slot] for slot in (*mine, *new)}))
        places.append(same.setdefault(spaces, spaces))
        for space in spaces:
            at[space].append(position)
    part = MemoryPart(place, places, at, declared, buffer, made, changed, used, _users(plan, slots, resources))
    for position in range(len(places)):
        for slot in part.made[position]:
            if declared[slot] < 0 and part.changed[position] and len(part.users[slot]) == 1 and not plan.keep[slot]:
                declared[slot] = 0  # a function that changes what it is given, and returns nothing that is wanted
    return part


def _users(plan: Plan, slots: int, resources: set[int]) -> Rows:
    """Per slot the positions that use it; none for resources."""
    offsets, touched = plan.accesses
    positions = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    if resources:
        kept = ~np.isin(touched, list(resources))
        touched, positions = touched[kept], positions[kept]
    return Rows.grouped(slots, touched, positions)


def _declared(plan: Plan, buffer: array[int]) -> array[int]:
    program, expansion = plan.program, plan.expansion
    by_buffer: dict[int, int] = {}
    for each in program.declared:
        nbytes = getattr(each.value, "nbytes", None) if each.kind == CONSTANT else each.nbytes
        if each.kind in (INPUT, CONSTANT) or each.nbytes is not None:
            by_buffer[each.index] = -1 if nbytes is None else int(nbytes)
    for index, literal in zip(expansion.literals.values(), expansion.literal_values, strict=True):
        by_buffer[index] = int(np.asarray(literal).nbytes)
    for item in expansion.items:
        if not isinstance(item, Transfer) and item.kind is CALL and item.options.nbytes is not None:
            for output in item.outputs:
                by_buffer[output.index] = item.options.nbytes
    return array("q", (by_buffer.get(index, -1) for index in buffer))
