"""The order of a plan's items under memory limits: the one of a few that would move the fewest bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from plait.graph import BUFFER, CALL, CONSTANT, INPUT, RESOURCE, Edges, Program
from plait.graph.hazards import WRITE
from plait.scheduler.expand import HOST, Expansion, Transfer
from plait.scheduler.memory.belady import Demand, bytes_moved
from plait.scheduler.memory.blocks import block_order, chains

if TYPE_CHECKING:
    from plait.graph import WorkItem

SHARES = (0.5, 0.7, 0.85, 1.0)  # of the limit: how large blocks are tried
MOST_ITEMS, MOST_CHAINS = 20_000, 1_500  # beyond, growing blocks would take longer than it saves
NEARLY = 1.02  # an order that moves so little more than the best, and is the policy's, is taken

IntArray = npt.NDArray[np.int64]


def memory_order(program: Program, expansion: Expansion, order: IntArray, limits: Sequence[int | None]) -> IntArray:
    """``order`` (item indices by urgency), or a better one if that would move bytes between memory spaces."""
    demand = demand_of(program, expansion, limits)
    before = _before(expansion.edges)
    lazy = _lazy(demand, expansion, before)
    urgent = _emitted([index for index in order.tolist() if not lazy[index]], expansion, before)
    least = bytes_moved(demand, urgent)
    if not least:
        return order if not bytes_moved(demand, order.tolist()) else np.array(urgent, dtype=np.int64)
    core = [index for index, waits in enumerate(lazy) if not waits]
    candidates = [_emitted(core, expansion, before)]
    groups = chains(demand, core) if len(core) <= MOST_ITEMS else []
    if groups and len(groups) <= MOST_CHAINS:
        short = _contracted(before, lazy)
        room = min(limit for limit in limits if limit is not None)
        for share in SHARES:
            found = block_order(demand, core, short, room * share, groups)
            if found is not None:
                candidates.append(_emitted(found, expansion, before))
    moved = [bytes_moved(demand, each) for each in candidates]
    best = min(range(len(candidates)), key=moved.__getitem__)
    return np.array(urgent if least <= NEARLY * moved[best] else candidates[best], dtype=np.int64)


def demand_of(program: Program, expansion: Expansion, limits: Sequence[int | None]) -> Demand:
    """What the items of a program use; a size that is not known counts as the largest that is."""
    slots = expansion.slot_count
    place, buffer = [HOST] * slots, list(range(slots))
    for number, of_buffer in enumerate(expansion.slots):
        for index, slot in of_buffer.items():
            if number != HOST:
                place[slot], buffer[slot] = number, index
    known: dict[int, int | None] = {each.index: each.nbytes for each in program.declared}
    given = {each.index for each in program.declared if each.kind in (INPUT, CONSTANT)} - set(program.mutated)
    for each in program.declared:
        if each.kind == CONSTANT:
            known[each.index] = getattr(each.value, "nbytes", 0)
    for index, array in zip(expansion.literals.values(), expansion.literal_values, strict=True):
        known[index] = np.asarray(array).nbytes
        given.add(index)
    for item in expansion.items:
        if not isinstance(item, Transfer) and item.kind is CALL and item.options.nbytes is not None:
            known.update(dict.fromkeys((output.index for output in item.outputs), item.options.nbytes))
    usual = max((nbytes for nbytes in known.values() if nbytes), default=0)
    if not usual:  # nothing is known: as if a quarter of all buffers fitted
        usual = max(1, 4 * min(limit for limit in limits if limit is not None) // max(4, program.buffer_count))
    resources = {each.index for each in program.declared if each.kind == RESOURCE}
    known.update(dict.fromkeys(resources, 0))
    size = [_or(known.get(index), usual) for index in buffer]
    for slot in range(slots):
        if place[slot] == HOST and buffer[slot] in given:
            size[slot] = 0
    kept = [False] * slots
    for value in program.outputs.values():
        kept[getattr(value, "buffer", value).index] = True  # type: ignore[union-attr]
    starts, modes, accessed = expansion.offsets.tolist(), expansion.modes, expansion.slots_accessed
    writes = (modes & WRITE != 0).tolist()
    flat = accessed.tolist()
    uses, made, changed = [], [], []
    clean = [False] * slots
    for index, item in enumerate(expansion.items):
        span = range(starts[index], starts[index + 1])
        new = _made(item, expansion, index)
        uses.append(tuple(dict.fromkeys((*(flat[access] for access in span), *new))))
        made.append(new)
        changed.append(tuple({flat[access] for access in span if writes[access]} - set(new)))
        if isinstance(item, Transfer) and item.source == HOST and buffer[item.source_slot] in given:
            clean[item.target_slot] = True
    for each in program.declared:
        if each.kind == BUFFER:
            clean[each.index] = False
    return Demand(uses, made, changed, size, place, kept, clean, limits)


def _made(item: WorkItem | Transfer, expansion: Expansion, index: int) -> tuple[int, ...]:
    if isinstance(item, Transfer):
        return (item.target_slot,)
    if item.kind is not CALL:
        return ()
    place = expansion.places[index] if expansion.places else HOST
    return tuple(expansion.slot(place, output.index) for output in item.outputs)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _before(edges: Edges) -> list[list[int]]:
    offsets, sources = edges.predecessors()
    starts, flat = offsets.tolist(), sources.tolist()
    return [flat[starts[index] : starts[index + 1]] for index in range(edges.count)]


def _lazy(demand: Demand, expansion: Expansion, before: list[list[int]]) -> list[bool]:
    """Items that can wait until what they make is needed: transfers, and chains that begin with nothing."""
    behind = [0] * len(before)
    for waits in before:
        for other in waits:
            behind[other] += 1
    sources: list[bool] = []
    for index, waits in enumerate(before):
        alone = not waits or (len(waits) == 1 and sources[waits[0]] and behind[waits[0]] == 1)
        makes = bool(demand.made[index]) and not demand.changed[index] and behind[index] > 0
        sources.append(alone and makes and not isinstance(expansion.items[index], Transfer))
    return [source or isinstance(item, Transfer) for source, item in zip(sources, expansion.items, strict=True)]


def _contracted(before: list[list[int]], lazy: list[bool]) -> list[list[int]]:
    """What each item waits for, through those that are put where they are needed."""
    short: list[list[int]] = []
    for waits in before:
        found: dict[int, None] = {}
        for other in waits:
            found.update(dict.fromkeys(short[other] if lazy[other] else (other,)))
        short.append(list(found))
    return short


def _emitted(core: list[int], expansion: Expansion, before: list[list[int]]) -> list[int]:
    """All items: what can wait just before who needs it first, transfers to the host as soon as they can be."""
    count = len(before)
    behind: list[list[int]] = [[] for _ in range(count)]
    for index, waits in enumerate(before):
        for other in waits:
            behind[other].append(index)
    done = [False] * count
    order: list[int] = []

    def emit(index: int) -> None:
        stack = [index]
        while stack:
            current = stack[-1]
            missing = [other for other in before[current] if not done[other]]
            if missing and not done[current]:
                stack += missing
                continue
            stack.pop()
            if not done[current]:
                done[current] = True
                order.append(current)

    for index in core:
        if done[index]:
            continue
        emit(index)
        for other in behind[index]:
            item = expansion.items[other]
            if not done[other] and isinstance(item, Transfer) and item.target == HOST:
                emit(other)
    for index in range(count):
        emit(index)
    return order
