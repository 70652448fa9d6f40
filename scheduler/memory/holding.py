"""What a run holds: its slots' values as allocations, from the caller's arrays at its begin to the outputs at its end.

Every function is called with the dispatcher's lock held, and none waits or copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from plait.graph import BUFFER, CONSTANT, INPUT
from plait.scheduler.deferred import Sized
from plait.scheduler.expand import HOST, Transfer
from plait.scheduler.memory.allocation import (
    AWAY,
    COMING,
    RESIDENT,
    Allocation,
    movable,
    parts_of,
    root_bytes,
    roots,
    view_in,
)
from plait.scheduler.memory.backing import Filled, OnHost, Original

if TYPE_CHECKING:
    from plait.scheduler.memory.residency import Residency


def begin(run: Residency) -> None:
    """The caller's arrays are not ours; the run's own buffers and copies are made when first used."""
    state = run.state
    values, program = state.values, state.plan.program
    for slot, value in enumerate(values[:-2]):
        if value is not None and slot not in state.donated:
            for root in roots(value):
                run.external[id(root)] = root
    if not run.limited[HOST]:
        return
    for slot in state.donated:
        if slot not in state.fetched:
            attach(run, slot, values[slot])
    for buffer in program.declared:
        slot = buffer.index
        if buffer.kind == BUFFER and slot in state.plan.host_made:
            assert buffer.shape is not None and buffer.dtype is not None
            _away(run, slot, buffer.nbytes or 0, Filled(buffer.shape, buffer.dtype, buffer.value))
        elif buffer.kind in (INPUT, CONSTANT) and slot in program.mutated and slot not in state.fetched:
            value = values[slot]
            if slot not in state.donated and isinstance(value, np.ndarray):
                _away(run, slot, value.nbytes, Original(value))
                values[slot] = None


def prepared(run: Residency) -> None:
    """What the run copied to the host before its first item is held from now on."""
    for slot in run.state.fetched:
        if run.limited[HOST] and run.state.values[slot] is not None:
            attach(run, slot, run.state.values[slot])


def _away(run: Residency, slot: int, nbytes: int, backing: Filled | Original) -> None:
    allocation = Allocation(run, HOST, nbytes, 0)
    allocation.state, allocation.backing = AWAY, backing
    allocation.slots.add(slot)
    if isinstance(backing, Original):
        allocation.views[slot] = view_in(backing.array, backing.array)
    else:
        allocation.views[slot] = view_in(empty := np.empty(0), empty)
    run.held[slot] = allocation


def attach(run: Residency, slot: int, value: Any) -> int:
    """Count a slot's value; how many bytes are new."""
    there = run.held[slot]
    if there is not None:
        if there.state == RESIDENT and any(id(root) == there.root for root in roots(value)):
            return 0
        run.detach(slot)
    found: dict[int, tuple[Any, int]] = {}
    for root, array in parts_of(value):
        found[id(root)] = root, max(root_bytes(root, array), found.get(id(root), (root, 0))[1])
    mine = [each for key, each in found.items() if key not in run.external]
    new = sum(_attach(run, slot, value, root, nbytes, alone=len(found) == 1) for root, nbytes in mine)
    run.sizes[slot] = max(run.sizes[slot], sum(part.nbytes for part in run.parts(slot)))
    return new


def _attach(run: Residency, slot: int, value: Any, root: Any, nbytes: int, *, alone: bool) -> int:
    """Count one of the roots of a slot's value (``alone``: the only one); how many bytes are new."""
    allocation, new = run.by_root.get(id(root)), 0
    if allocation is None:
        place = run.part.place[slot]
        if not nbytes:
            return 0
        allocation = Allocation(run, place, nbytes, id(root))
        run.by_root[id(root)] = allocation
        new = allocation.nbytes
        run.arbiter.holds(allocation)
    if not alone or not movable(value, root) or (allocation.place != HOST and allocation.slots):
        allocation.fixed = True
    elif isinstance(root, np.ndarray):
        allocation.views[slot] = view_in(root, value)
    allocation.slots.add(slot)
    if run.held[slot] is None:
        run.held[slot] = allocation
    else:
        run.others.setdefault(slot, []).append(allocation)
    return new


def transferred(run: Residency, item: Transfer) -> None:
    """A device's copy of what the caller holds on the host anyway need not be copied back to make room."""
    allocation, source = run.held[item.target_slot], run.state.values[item.source_slot]
    if allocation is None or not isinstance(source, np.ndarray | Sized) or run.held[item.source_slot] is not None:
        return
    if any(id(root) in run.external for root in roots(source)):
        allocation.backing = OnHost(source)


def came_back(run: Residency, allocation: Allocation) -> None:
    """The bytes of an allocation are back, in new memory."""
    for slot in allocation.slots:
        value = run.state.values[slot]
        root = next(roots(value))
        allocation.root = id(root)
        if not movable(value, root) or not allocation.nbytes:
            allocation.fixed = True  # an input's copy, of a kind that can be made and not moved
            allocation.views.pop(slot, None)
        elif isinstance(root, np.ndarray):
            allocation.views[slot] = view_in(root, value)
    run.by_root[allocation.root] = allocation


def value_for_caller(run: Residency, slot: int) -> Any:
    """The value of an output, which is the caller's from now on and counts no longer."""
    allocation, value = run.held[slot], run.state.values[slot]
    if allocation is None:
        return value
    if allocation.state in (AWAY, COMING) and value is None:
        return run.arbiter.deliver(allocation, slot)
    for root in roots(value):
        run.external[id(root)] = root
    for part in run.parts(slot):
        part.fixed = True  # the caller's; also where it is being copied away, or part of what another slot holds
        for other in list(part.slots):
            _let_go(run, other, part)
        run.arbiter.drop(part)
    return value


def _let_go(run: Residency, slot: int, allocation: Allocation) -> None:
    left = [part for part in run.parts(slot) if part is not allocation]
    allocation.slots.discard(slot)
    run.held[slot] = left[0] if left else None
    if left[1:]:
        run.others[slot] = left[1:]
    else:
        run.others.pop(slot, None)
