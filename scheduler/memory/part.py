"""What a plan says of memory before it runs: per position what it makes, changes and touches, per slot who uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from plait.graph import CALL, CONSTANT, INPUT, RESOURCE
from plait.graph.hazards import WRITE
from plait.scheduler.expand import HOST, Transfer

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan


@dataclass(frozen=True, eq=False)
class MemoryPart:
    """Flat facts: ``place[s]`` is the memory space of slot s, ``users[s]`` the positions that use it, ascending.

    Of position p: ``made[p]`` are the slots that it gives a new value, ``changed[p]`` those whose bytes it changes,
    ``touched[p]`` all that it uses less those that it makes, ``places[p]`` their spaces. ``at[k]`` are the positions
    that touch space k, ascending. ``declared[s]`` is slot s's size or a bound of it, -1 where nothing is known, and
    ``buffer[s]`` the buffer of which it is a replica.
    """

    place: list[int]
    made: list[tuple[int, ...]]
    changed: list[tuple[int, ...]]
    touched: list[tuple[int, ...]]
    places: list[tuple[int, ...]]
    at: list[list[int]]
    users: list[list[int]]
    declared: list[int]
    buffer: list[int]


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
    place, buffer = [HOST] * slots, list(range(slots))
    for number, of_buffer in enumerate(expansion.slots):
        for index, slot in of_buffer.items():
            if number != HOST:
                place[slot], buffer[slot] = number, index
    declared = _declared(plan, buffer)
    offsets, touched = plan.access_offsets, plan.access_slots
    starts, modes, accessed = expansion.offsets, expansion.modes, expansion.slots_accessed
    resources = {each.index for each in program.declared if each.kind == RESOURCE}
    made: list[tuple[int, ...]] = []
    changed: list[tuple[int, ...]] = []
    uses: list[tuple[int, ...]] = []
    places: list[tuple[int, ...]] = []
    at: list[list[int]] = [[] for _ in plan.places]
    users: list[list[int]] = [[] for _ in range(slots)]
    same: dict[tuple[int, ...], tuple[int, ...]] = {}  # there are few different ones
    for position, index in enumerate(plan.order.tolist()):
        item = expansion.items[index]
        mine = tuple(slot for slot in touched[offsets[position] : offsets[position + 1]] if slot not in resources)
        there = plan.kinds[position] // 3
        if isinstance(item, Transfer):
            new: tuple[int, ...] = (item.target_slot,)
        elif item.kind is CALL:
            new = tuple(expansion.slot(there, output.index) for output in item.outputs)
        else:
            new = ()
        span = slice(starts[index], starts[index + 1])
        written = accessed[span][modes[span] & WRITE != 0].tolist()
        made.append(new)
        changed.append(tuple(slot for slot in dict.fromkeys(written) if slot not in new and slot not in resources))
        uses.append(tuple(slot for slot in mine if slot not in new))
        spaces = tuple(sorted({place[slot] for slot in (*mine, *new)}))
        places.append(same.setdefault(spaces, spaces))
        for space in spaces:
            at[space].append(position)
        for slot in mine:
            users[slot].append(position)
    for position, slots_made in enumerate(made):
        for slot in slots_made:
            if declared[slot] < 0 and changed[position] and users[slot] == [position] and not plan.keep[slot]:
                declared[slot] = 0  # a function that changes what it is given, and returns nothing that is wanted
    return MemoryPart(place, made, changed, uses, places, at, users, declared, buffer)


def _declared(plan: Plan, buffer: list[int]) -> list[int]:
    program, expansion = plan.program, plan.expansion
    by_buffer: dict[int, int] = {}
    for each in program.declared:
        nbytes = getattr(each.value, "nbytes", None) if each.kind == CONSTANT else each.nbytes
        if each.kind in (INPUT, CONSTANT) or each.nbytes is not None:
            by_buffer[each.index] = -1 if nbytes is None else int(nbytes)
    for index, array in zip(expansion.literals.values(), expansion.literal_values, strict=True):
        by_buffer[index] = int(np.asarray(array).nbytes)
    for item in expansion.items:
        if not isinstance(item, Transfer) and item.kind is CALL and item.options.nbytes is not None:
            for output in item.outputs:
                by_buffer[output.index] = item.options.nbytes
    return [by_buffer.get(index, -1) for index in buffer]
