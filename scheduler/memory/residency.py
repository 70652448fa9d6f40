"""One run under memory limits: what it holds where, what its items wait for, and which of it can go.

Every method is called with the dispatcher's lock held, and none waits or copies.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.graph import BUFFER, CONSTANT, INPUT
from plait.scheduler.deferred import Sized
from plait.scheduler.expand import HOST, Transfer
from plait.scheduler.memory.allocation import (
    AWAY,
    COMING,
    LEAVING,
    RESIDENT,
    Allocation,
    copied_bytes,
    movable,
    root_bytes,
    roots,
    view_in,
)
from plait.scheduler.memory.backing import Filled, OnHost, Original
from plait.scheduler.memory.part import MemoryPart, memory_part
from plait.scheduler.memory.space import SpaceUse
from plait.scheduler.memory.spill import Extent

if TYPE_CHECKING:
    from plait.scheduler.memory.arbiter import Arbiter
    from plait.scheduler.memory.claim import Claim
    from plait.scheduler.memory.move import Move
    from plait.scheduler.state import RunState

WAITING = 0
LOOK_BACK = 64  # so many earlier items are looked at for what they will need
NEVER = 1 << 60


@dataclass(slots=True)
class Grant:
    """An item may begin: ``promised`` are the bytes per place that it has not made yet; ``guess``: they may be more."""

    promised: dict[int, int]
    guess: bool


class Residency:
    """What one run has in the limited spaces of its scheduler."""

    def __init__(self, arbiter: Arbiter, state: RunState, sizes: array[int] | None) -> None:
        self.arbiter = arbiter
        self.state = state
        self.part: MemoryPart = memory_part(state.plan)
        slots = len(self.part.place)
        self.held: list[Allocation | None] = [None] * slots  # per slot
        self.others: dict[int, list[Allocation]] = {}  # further ones per slot, of containers
        self.by_root: dict[int, Allocation] = {}
        self.here: list[dict[Allocation, None]] = [{} for _ in arbiter.spaces]  # resident or moving, oldest first
        self.pins = array("i", [0]) * slots
        self.next_use = array("i", [0]) * slots  # of a slot's users, which is the first that has not begun
        self.front_at = [0] * len(self.part.at)
        self.granted: dict[int, Grant] = {}
        self.stalled: dict[int, tuple[int, int]] = {}  # since when (ns) a ready item waits, for so many bytes
        self.claims: dict[int, Claim] = {}  # by position
        self.waiting: list[dict[int, None]] = [{} for _ in state.ready]  # by kind: ready, and there is no room
        self._waiting_in: list[dict[int, None]] = [{} for _ in arbiter.spaces]  # the same by place
        self._missed: dict[int, tuple[int, int]] = {}  # of these, a place and the room that was not there
        self.moves: list[deque[Move]] = [deque() for _ in range(max(3, len(state.ready)))]
        self.expected = self._expected(sizes)
        self.sizes = array("q", [0]) * slots
        self.in_use = [0] * len(arbiter.spaces)
        self.peak = [0] * len(arbiter.spaces)
        self.moved_out = [0] * len(arbiter.spaces)
        self.moved_in = [0] * len(arbiter.spaces)
        self.limited = [space.limit is not None for space in arbiter.spaces]
        self._external: dict[int, Any] = {}
        self._begin()

    def _expected(self, sizes: array[int] | None) -> array[int]:
        declared = self.part.declared
        if sizes is None:
            return declared
        return array(
            "q", (known if known >= 0 else before or -1 for known, before in zip(declared, sizes, strict=True))
        )

    def _begin(self) -> None:
        """The caller's arrays are not ours; the run's own buffers and copies are made when first used."""
        state = self.state
        values, program = state.values, state.plan.program
        for slot, value in enumerate(values[:-2]):
            if value is not None and slot not in state.donated:
                for root in roots(value):
                    self._external[id(root)] = root
        if not self.limited[HOST]:
            return
        for slot in state.donated:
            if slot not in state.fetched:
                self.attach(slot, values[slot])
        for buffer in program.declared:
            slot = buffer.index
            if buffer.kind == BUFFER and slot in state.plan.host_made:
                assert buffer.shape is not None and buffer.dtype is not None
                self._away(slot, buffer.nbytes or 0, Filled(buffer.shape, buffer.dtype, buffer.value))
            elif buffer.kind in (INPUT, CONSTANT) and slot in program.mutated and slot not in state.fetched:
                if slot in state.donated:
                    continue
                value = values[slot]
                if isinstance(value, np.ndarray):
                    self._away(slot, value.nbytes, Original(value))
                    values[slot] = None

    @property
    def ends(self) -> bool:
        """Whether nothing more of the run begins, so that all it holds will be free."""
        return self.state.stopping or self.state.end_ns > 0

    def prepared(self) -> None:
        """What the run copied to the host before its first item is held from now on."""
        for slot in self.state.fetched:
            if self.limited[HOST] and self.state.values[slot] is not None:
                self.attach(slot, self.state.values[slot])

    def _away(self, slot: int, nbytes: int, backing: Filled | Original) -> None:
        allocation = Allocation(self, HOST, nbytes, 0)
        allocation.state, allocation.backing = AWAY, backing
        allocation.slots.add(slot)
        if isinstance(backing, Original):
            allocation.views[slot] = view_in(backing.array, backing.array)
        else:
            allocation.views[slot] = view_in(empty := np.empty(0), empty)
        self.held[slot] = allocation

    # ---- what an item needs -----------------------------------------------------------------------------------

    def needs(self, position: int) -> tuple[dict[int, int], list[Allocation], bool]:
        """Bytes that must be found per limited place, what must be brought in for it, and whether sizes are guesses."""
        part, held = self.part, self.held
        lost = self.arbiter.lost
        wanted = {place: 0 for place in part.places[position] if self.limited[place] and place not in lost}
        missing: dict[int, Allocation] = {}
        for slot in part.touched(position):
            allocation = held[slot]
            if allocation is None or allocation.place not in wanted:
                continue
            if allocation.state != RESIDENT and id(allocation) not in missing:
                missing[id(allocation)] = allocation
                if allocation.state in (AWAY, LEAVING):
                    wanted[allocation.place] += allocation.nbytes
        guess = False
        for slot in part.made(position):
            there = held[slot]
            if there is not None and there.place in wanted and there.state in (LEAVING, COMING):
                missing[id(there)] = there  # what is in it is of no use any more, but it is being copied
            place = part.place[slot]
            if place not in wanted:
                continue
            nbytes, known = self._new_bytes(position, slot)
            wanted[place] += nbytes
            guess = guess or not known
        return wanted, list(missing.values()), guess

    def _new_bytes(self, position: int, slot: int) -> tuple[int, bool]:
        """How many bytes the item will make for ``slot``, and whether that is more than a guess."""
        there = self.held[slot]
        if there is not None and there.state == RESIDENT:
            return 0, True  # a transfer into the replica that is there already
        item = self.state.plan.item(position)
        if isinstance(item, Transfer) and item.source is not None:
            source, value = self.held[item.source_slot], self.state.values[item.source_slot]
            if value is not None:
                return copied_bytes(value), True
            if source is not None:
                view = source.views.get(item.source_slot) if isinstance(source.backing, Extent) else None
                return source.nbytes if view is None else view.nbytes, True
        if self.expected[slot] >= 0:
            return self.expected[slot], True
        if len(self.part.users(slot)) < 2 and not self.state.plan.keep[slot]:
            return 0, True  # nobody wants it, as where a function changes an argument and returns nothing
        given = tuple(self._bytes_of(each) for each in self.part.touched(position))
        if item.outputs:
            like = self.arbiter.alike.find(item.function, given, self.part.buffer[slot] - item.outputs[0].index)
            if like is not None:
                return like, True
        return max(given, default=0) or self.arbiter.alike.largest, False

    def _bytes_of(self, slot: int) -> int:
        parts = self.parts(slot)
        if parts:
            return sum(part.nbytes for part in parts)
        value = self.state.values[slot]
        return max(0, self.expected[slot]) if value is None else copied_bytes(value)

    def headroom(self, position: int, place: int) -> int:
        """What the most demanding of the earlier items that have not begun will need for its results there."""
        most, looked = 0, 0
        at, status = self.part.at[place], self.state.status
        for index in range(self.front_at[place], len(at)):
            other = at[index]
            if other >= position or looked >= LOOK_BACK:
                break
            if status[other] == WAITING and other not in self.granted:
                looked += 1
                made = (slot for slot in self.part.made(other) if self.part.place[slot] == place)
                most = max(most, sum(self._new_bytes(other, slot)[0] for slot in made))
        return most

    def front(self, place: int) -> int:
        """The first position that uses a place and has not been let in; -1 if there is none."""
        at, status = self.part.at[place], self.state.status
        index = self.front_at[place]
        while index < len(at) and (status[at[index]] != WAITING or at[index] in self.granted):
            index += 1
        self.front_at[place] = index
        return at[index] if index < len(at) else -1

    def leads(self, position: int) -> bool:
        """Whether nothing before it in the plan still waits to use one of its limited places."""
        return all(self.front(place) == position for place in self.part.places[position] if self.limited[place])

    # ---- letting in -------------------------------------------------------------------------------------------

    def admits(self, position: int) -> bool:
        """Whether the item may begin: everything it uses is there, and there is room for what it makes."""
        if position in self.granted:
            return True
        wanted, missing, guess = self.needs(position)
        if not wanted:
            self.granted[position] = Grant({}, False)
            self._another_leads(position)
            return True
        spaces, arbiter = self.arbiter.spaces, self.arbiter
        lead = self.leads(position)
        claim = self.claims.get(position)
        if claim is None and not (guess and any(spaces[place].unsized or not lead for place in wanted)):
            fits = all(
                nbytes == 0 or spaces[place].free - (0 if lead else self.headroom(position, place)) >= nbytes
                for place, nbytes in wanted.items()
            )
            if fits and not missing:
                self.grant(position, wanted, guess)
                return True
            if fits:
                for allocation in missing:
                    if allocation.state == AWAY:
                        arbiter.moves.bring_in(allocation)
                self.stalled.setdefault(position, (self.arbiter.now_ns(), sum(wanted.values())))
                return False
        if claim is None and lead:
            arbiter.turns.claim(self, position)
        if position in self.granted:
            return True
        self.stalled.setdefault(position, (self.arbiter.now_ns(), sum(wanted.values())))
        self._missed.pop(position, None)
        if not missing and not guess:  # else it may come to need less
            short = [(place, nbytes) for place, nbytes in wanted.items() if spaces[place].free < nbytes]
            self._missed.update(zip([position], short, strict=False))
        return False

    def grant(self, position: int, promised: dict[int, int], guess: bool) -> None:
        """Let an item in: its bytes are promised, and what it uses stays."""
        self.granted[position] = Grant(promised, guess)
        self._missed.pop(position, None)
        since, nbytes = self.stalled.pop(position, (0, 0))
        if since:
            self.state.stalls.append((since, self.arbiter.now_ns(), nbytes))
        for place, nbytes in promised.items():
            space = self.arbiter.spaces[place]
            space.reserved += nbytes
            space.granted += 1
            space.unsized += guess
        self.pin(position, 1)
        for slot in (*self.part.changed(position), *self.part.made(position)):
            allocation = self.held[slot]
            if allocation is not None:
                self.arbiter.forget_backing(allocation)
        self._another_leads(position)

    def _another_leads(self, position: int) -> None:
        self.arbiter.changed.update(place for place in self.part.places[position] if self.limited[place])

    def wait(self, position: int) -> None:
        """A ready item stands aside until something changes in a place that it uses."""
        self.waiting[self.state.plan.kinds[position]][position] = None
        for place in self.part.places[position]:
            if self.limited[place]:
                self._waiting_in[place][position] = None

    def look_again(self, place: int) -> None:
        """Something has changed in a place: what stands aside there is looked at again, where that may help."""
        waiting = self._waiting_in[place]
        if waiting:
            front = self.front(place)
            self.wake([position for position in waiting if self._may_go(position, front)])

    def _may_go(self, position: int, front: int) -> bool:
        """False if it has a claim, and so hears of its turn, or if the room that it missed is still not there."""
        if position in self.claims:
            return False
        place, nbytes = self._missed.get(position, (-1, 0))
        return position == front or place < 0 or self.arbiter.spaces[place].free >= nbytes

    def wake(self, positions: list[int], *, ready: bool = True) -> None:
        """Those of the items that stand aside do so no longer: lanes look at them again, unless not ``ready``."""
        woken = False
        for position in positions:
            waiting = self.waiting[self.state.plan.kinds[position]]
            if position not in waiting:
                continue
            del waiting[position]
            for place in self.part.places[position]:
                self._waiting_in[place].pop(position, None)
            if ready:
                self.state.make_ready(position)
                woken = True
        if woken and not self.state.stopping:
            self.arbiter.announce(self.state)

    def pin(self, position: int, by: int) -> None:
        """What an item uses must stay, or need no longer."""
        for slot in (*self.part.touched(position), *self.part.made(position)):
            self.pins[slot] += by

    def ended(self, position: int) -> None:
        """An item that was let in is done, failed or skipped: what was promised and is not used is free again."""
        grant = self.granted.pop(position, None)
        if grant is None:
            claim = self.claims.get(position)
            if claim is not None:
                self.arbiter.turns.withdraw(claim)
            self._another_leads(position)
            return
        if grant.promised:
            self.pin(position, -1)
        for place, nbytes in grant.promised.items():
            space = self.arbiter.spaces[place]
            space.reserved -= nbytes
            space.granted -= 1
            space.unsized -= grant.guess
        self._another_leads(position)

    def produced(self, position: int) -> None:
        """The values that an item made are there: they are held in place of what was promised."""
        grant = self.granted.get(position)
        for slot in self.part.made(position):
            place = self.part.place[slot]
            value = self.state.values[slot]
            if value is None or not self.limited[place]:
                continue
            nbytes = self.attach(slot, value)
            if self.expected[slot] < 0:
                self._learn(position, slot)
            if grant is not None and place in grant.promised:
                used = min(nbytes, grant.promised[place])
                grant.promised[place] -= used
                self.arbiter.spaces[place].reserved -= used
        item = self.state.plan.item(position)
        if isinstance(item, Transfer) and item.source == HOST and not item.copied:
            self._back(item)

    def _learn(self, position: int, slot: int) -> None:
        """Remember what a call made of arguments of these sizes, for calls like it."""
        item = self.state.plan.item(position)
        if isinstance(item, Transfer) or not item.outputs:
            return
        made = sum(part.nbytes for part in self.parts(slot))
        given = tuple(self._bytes_of(each) for each in self.part.touched(position))
        self.arbiter.alike.learn(item.function, given, self.part.buffer[slot] - item.outputs[0].index, made)

    def _back(self, item: Transfer) -> None:
        """A device's copy of what the caller holds on the host anyway need not be copied back to make room."""
        allocation, source = self.held[item.target_slot], self.state.values[item.source_slot]
        if allocation is None or not isinstance(source, np.ndarray | Sized) or self.held[item.source_slot] is not None:
            return
        if any(id(root) in self._external for root in roots(source)):
            allocation.backing = OnHost(source)

    def attach(self, slot: int, value: Any) -> int:
        """Count a slot's value; how many bytes are new."""
        there = self.held[slot]
        if there is not None:
            if there.state == RESIDENT and any(id(root) == there.root for root in roots(value)):
                return 0
            self.detach(slot)
        found = {id(root): root for root in roots(value)}
        mine = [root for key, root in found.items() if key not in self._external]
        new = sum(self._attach(slot, value, root, alone=len(found) == 1) for root in mine)
        parts = self.parts(slot)
        self.sizes[slot] = max(self.sizes[slot], sum(part.nbytes for part in parts))
        return new

    def _attach(self, slot: int, value: Any, root: Any, *, alone: bool) -> int:
        """Count one of the roots of a slot's value (``alone``: the only one); how many bytes are new."""
        allocation, new = self.by_root.get(id(root)), 0
        if allocation is None:
            place = self.part.place[slot]
            allocation = Allocation(self, place, root_bytes(root, value if alone else root), id(root))
            if not allocation.nbytes:
                return 0
            self.by_root[id(root)] = allocation
            new = allocation.nbytes
            self.arbiter.holds(allocation)
        if not alone or not movable(value, root) or (allocation.place != HOST and allocation.slots):
            allocation.fixed = True
        elif isinstance(root, np.ndarray):
            allocation.views[slot] = view_in(root, value)
        allocation.slots.add(slot)
        if self.held[slot] is None:
            self.held[slot] = allocation
        else:
            self.others.setdefault(slot, []).append(allocation)
        return new

    def parts(self, slot: int) -> list[Allocation]:
        """The allocations under a slot's value."""
        first = self.held[slot]
        return [] if first is None else [first, *self.others.get(slot, ())]

    def detach(self, slot: int) -> None:
        """A slot's value is no longer wanted: its bytes are free when no other slot shares them."""
        for allocation in self.parts(slot):
            allocation.slots.discard(slot)
            allocation.views.pop(slot, None)
            if not allocation.slots:
                self.arbiter.drop(allocation)
            elif allocation.place == HOST and allocation.views.keys() == allocation.slots:
                allocation.fixed = False  # what held it fast is gone
                self.arbiter.changed.add(allocation.place)
        self.held[slot] = None
        self.others.pop(slot, None)

    def rooted(self, allocation: Allocation) -> None:
        """The bytes of an allocation are back, in new memory."""
        for slot in allocation.slots:
            value = self.state.values[slot]
            root = next(roots(value))
            allocation.root = id(root)
            if not movable(value, root) or not allocation.nbytes:
                allocation.fixed = True  # an input's copy, of a kind that can be made and not moved
                allocation.views.pop(slot, None)
            elif isinstance(root, np.ndarray):
                allocation.views[slot] = view_in(root, value)
        self.by_root[allocation.root] = allocation

    # ---- what can go ------------------------------------------------------------------------------------------

    def distance(self, allocation: Allocation) -> int:
        """Positions from here to the next use of an allocation, NEVER if there is none; -1 if it cannot go."""
        if allocation.fixed or allocation.state != RESIDENT:
            return -1
        status, nearest = self.state.status, NEVER
        for slot in allocation.slots:
            if self.pins[slot]:
                return -1
            offsets, users = self.part.used_by
            index, end = offsets[slot] + self.next_use[slot], offsets[slot + 1]
            while index < end and status[users[index]] != WAITING:
                index += 1
            self.next_use[slot] = index - offsets[slot]
            if index < end:
                nearest = min(nearest, users[index])
        if nearest == NEVER:
            return NEVER
        return max(0, nearest - self.front(allocation.place))

    def uses(self) -> dict[str, SpaceUse]:
        """What the run holds per limited space."""
        return {
            space.name: SpaceUse(
                space.name,
                space.limit,
                self.in_use[place],
                sum(grant.promised.get(place, 0) for grant in self.granted.values()),
                self.peak[place],
                self.moved_out[place],
                self.moved_in[place],
            )
            for place, space in enumerate(self.arbiter.spaces)
            if space.limit is not None
        }

    # ---- the end ----------------------------------------------------------------------------------------------

    def value_for_caller(self, slot: int) -> Any:
        """The value of an output, which is the caller's from now on and counts no longer."""
        allocation, value = self.held[slot], self.state.values[slot]
        if allocation is None:
            return value
        if allocation.state in (AWAY, COMING) and value is None:
            return self.arbiter.deliver(allocation, slot)
        for root in roots(value):
            self._external[id(root)] = root
        for part in self.parts(slot):
            part.fixed = True  # the caller's; also where it is being copied away, or part of what another slot holds
            for other in list(part.slots):
                self._let_go(other, part)
            self.arbiter.drop(part)
        return value

    def _let_go(self, slot: int, allocation: Allocation) -> None:
        left = [part for part in self.parts(slot) if part is not allocation]
        allocation.slots.discard(slot)
        self.held[slot] = left[0] if left else None
        if left[1:]:
            self.others[slot] = left[1:]
        else:
            self.others.pop(slot, None)

    def stopped(self) -> None:
        """Nothing more of the run starts: moves that have not begun are not needed."""
        for moves in self.moves:
            while moves:
                self.arbiter.moves.undo(moves.popleft())
        for claim in list(self.claims.values()):
            self.arbiter.turns.withdraw(claim)
        self.arbiter.changed.update(place for place, nbytes in enumerate(self.in_use) if nbytes)

    def close(self) -> None:
        """The run has ended: nothing of it is held."""
        for position in list(self.granted):
            self.ended(position)
        for slot in range(len(self.held)):
            self.detach(slot)
        self._external.clear()
