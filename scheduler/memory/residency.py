"""One run under memory limits: what it holds where, what its items wait for, and which of it can go.

Every method is called with the dispatcher's lock held, and none waits or copies.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.scheduler.device_plan import transfer_call
from plait.scheduler.expand import HOST, Transfer
from plait.scheduler.memory.allocation import AWAY, RESIDENT, Allocation
from plait.scheduler.memory.holding import attach, begin, transferred
from plait.scheduler.memory.needs import headroom, learn, needs
from plait.scheduler.memory.part import MemoryPart, memory_part
from plait.scheduler.memory.space import SpaceUse

if TYPE_CHECKING:
    from plait.scheduler.memory.arbiter import Arbiter
    from plait.scheduler.memory.claim import Claim
    from plait.scheduler.memory.move import Move
    from plait.scheduler.state import RunState

WAITING = 0
NEVER = 1 << 60


@dataclass(slots=True)
class Grant:
    """An item may begin: ``promised`` are the bytes per place that it has not made yet; ``guess``: they may be more."""

    promised: dict[int, int]
    guess: bool


class Missed(NamedTuple):
    """``place`` had no room for the item's ``nbytes``, or for the ``needed`` ones with what those before it will make,
    of which ``front`` is the first."""

    place: int
    nbytes: int
    needed: int
    front: int


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
        self._missed: dict[int, Missed] = {}  # of these, what was not there
        self.moves: list[deque[Move]] = [deque() for _ in range(max(3, len(state.ready)))]
        self.expected = self._expected(sizes)
        self.sizes = array("q", [0]) * slots
        self.in_use = [0] * len(arbiter.spaces)
        self.peak = [0] * len(arbiter.spaces)
        self.moved_out = [0] * len(arbiter.spaces)
        self.moved_in = [0] * len(arbiter.spaces)
        self.limited = [space.limit is not None for space in arbiter.spaces]
        self.external: dict[int, Any] = {}
        self._limited_places: dict[tuple[int, ...], tuple[int, ...]] = {}
        begin(self)

    def _expected(self, sizes: array[int] | None) -> array[int]:
        declared = self.part.declared
        if sizes is None:
            return declared
        return array(
            "q", (known if known >= 0 else before or -1 for known, before in zip(declared, sizes, strict=True))
        )

    @property
    def ends(self) -> bool:
        """Whether nothing more of the run begins, so that all it holds will be free."""
        return self.state.stopping or self.state.end_ns > 0

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
        return all(self.front(place) == position for place in self.limited_places(position))

    def limited_places(self, position: int) -> tuple[int, ...]:
        """Those of an item's places whose memory is limited, without devices that are lost."""
        places = self.part.places[position]
        found = self._limited_places.get(places)
        if found is None:
            lost = self.arbiter.lost
            found = tuple(place for place in places if self.limited[place] and place not in lost)
            self._limited_places[places] = found
        return found

    def lost(self) -> None:
        """A device is lost: whatever lacked room there fails of itself once it is let in."""
        self._limited_places.clear()
        self._missed.clear()

    # ---- letting in -------------------------------------------------------------------------------------------

    def admits(self, position: int) -> bool:
        """Whether the item may begin: everything it uses is there, and there is room for what it makes."""
        if position in self.granted:
            return True
        wanted, missing, guess = needs(self, position)
        if not wanted:
            self.granted[position] = Grant({}, False)
            return True
        spaces, arbiter = self.arbiter.spaces, self.arbiter
        lead, short = self.leads(position), None
        claim = self.claims.get(position)
        if claim is None and not (guess and any(spaces[place].unsized or not lead for place in wanted)):
            short = self._short(position, wanted, lead)
            if short is None and not missing:
                self.grant(position, wanted, guess)
                return True
            if short is None:
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
        if short is not None and not missing and not guess:  # else it may come to need less
            self._missed[position] = short
        return False

    def _short(self, position: int, wanted: dict[int, int], lead: bool) -> Missed | None:
        """A place without room for the item and for what those before it will make; None if there is none."""
        for place, nbytes in wanted.items():
            free = self.arbiter.spaces[place].free
            if nbytes and (free < nbytes or not lead):
                needed = nbytes if lead else nbytes + headroom(self, position, place)
                if free < needed:
                    return Missed(place, nbytes, needed, self.front(place))
        return None

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
        for slot in (*self.part.changed[position], *self.part.made[position]):
            allocation = self.held[slot]
            if allocation is not None:
                self.arbiter.forget_backing(allocation)
        self.arbiter.led.update(self.limited_places(position))

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
        missed = self._missed.get(position)
        if missed is None or position == front:
            return True
        free = self.arbiter.spaces[missed.place].free
        return free >= (missed.needed if self.front(missed.place) == missed.front else missed.nbytes)

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
        for slot in (*self.part.touched[position], *self.part.made[position]):
            self.pins[slot] += by

    def ended(self, position: int) -> None:
        """An item that was let in is done, failed or skipped: what was promised and is not used is free again."""
        grant = self.granted.pop(position, None)
        if grant is None:
            claim = self.claims.get(position)
            if claim is not None:
                self.arbiter.turns.withdraw(claim)
            self.arbiter.led.update(self.limited_places(position))
            return
        if grant.promised:
            self.pin(position, -1)
        for place, nbytes in grant.promised.items():
            space = self.arbiter.spaces[place]
            space.reserved -= nbytes
            space.granted -= 1
            space.unsized -= grant.guess
        self.arbiter.changed.update(self.limited_places(position))

    def produced(self, position: int) -> None:
        """The values that an item made are there: they are held in place of what was promised."""
        grant = self.granted.get(position)
        for slot in self.part.made[position]:
            place = self.part.place[slot]
            value = self.state.values[slot]
            if value is None or not self.limited[place]:
                continue
            nbytes = attach(self, slot, value)
            if self.expected[slot] < 0:
                learn(self, position, slot)
            if grant is not None and place in grant.promised:
                used = min(nbytes, grant.promised[place])
                grant.promised[place] -= used
                self.arbiter.spaces[place].reserved -= used
        if self.state.plan.calls[position] is transfer_call:
            item = self.state.plan.item(position)
            if isinstance(item, Transfer) and item.source == HOST and not item.copied:
                transferred(self, item)

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

    # ---- what can go ------------------------------------------------------------------------------------------

    def distance(self, allocation: Allocation) -> int:
        """Positions from here to the next use of an allocation, NEVER if there is none; -1 if it cannot go."""
        if allocation.fixed or allocation.state != RESIDENT:
            return -1
        status, nearest = self.state.status, NEVER
        for slot in allocation.slots:
            if self.pins[slot]:
                return -1
            offsets, users = self.part.users.offsets, self.part.users.numbers
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
        self.external.clear()
