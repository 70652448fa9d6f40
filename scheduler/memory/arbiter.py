"""Who may have memory next: the limited spaces of a scheduler, and the queue of items and leases that need room.

An item that leads its run, and for which there is no room, gets a place in the queue. One at a time in each space has
its turn: what becomes free is put aside for it, and what is not in use is moved away, that first which is not needed
for longest (Belady, IBM Systems Journal 1966), until it fits. As every item in turn fits alone, all come to their end,
whatever their priorities; who cannot go on because others hold what cannot be moved lets the next one try.
Every method is called with the dispatcher's lock held, and none waits or copies.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from plait.errors import OutOfMemory
from plait.scheduler.expand import HOST
from plait.scheduler.memory.alike import Alike
from plait.scheduler.memory.allocation import AWAY, COMING, GONE, LEAVING, RESIDENT, Allocation
from plait.scheduler.memory.backing import Filled, delivered
from plait.scheduler.memory.claim import Claim
from plait.scheduler.memory.move import Move
from plait.scheduler.memory.residency import NEVER, Residency
from plait.scheduler.memory.shortage import shortage
from plait.scheduler.memory.space import Space
from plait.scheduler.memory.spill import Extent, SpillFile

if TYPE_CHECKING:
    from plait.scheduler.state import RunState


class Arbiter:
    """The limited memory of one scheduler. ``announce`` makes lanes look at a run again."""

    def __init__(self, names: tuple[str, ...], limits: list[int | None], announce: Callable[[RunState], None]) -> None:
        self.spaces = [Space(name, limit) for name, limit in zip(names, limits, strict=True)]
        self.file = SpillFile()
        self.runs: dict[RunState, Residency] = {}
        self.claims: list[Claim] = []
        self.changed = False
        self.dead: list[Any] = []  # values to let go of without the lock
        self._announce = announce
        self._number = 0
        self.lost: set[int] = set()
        self.alike = Alike()
        self.now_ns: Callable[[], int] = perf_counter_ns

    def open(self, state: RunState, sizes: array[int] | None) -> Residency:
        """Count a run from now on."""
        residency = self.runs[state] = Residency(self, state, sizes)
        return residency

    def close(self, state: RunState) -> None:
        """A run has ended: all of it is free."""
        residency = self.runs.pop(state)
        residency.stopped()
        residency.close()
        self.changed = True

    def lose(self, place: int) -> None:
        """A device is lost: nothing is kept back for it, and what wants it fails of itself."""
        self.lost.add(place)
        self.changed = True

    # ---- bytes ------------------------------------------------------------------------------------------------

    def holds(self, allocation: Allocation) -> None:
        """New bytes are there, or on their way."""
        owner, place = allocation.owner, allocation.place
        owner.here[place][allocation] = None
        owner.in_use[place] += allocation.nbytes
        owner.peak[place] = max(owner.peak[place], owner.in_use[place])
        self.spaces[place].take(allocation.nbytes)

    def drop(self, allocation: Allocation) -> None:
        """Nobody wants the bytes any more."""
        owner = allocation.owner
        if allocation.root:
            owner.by_root.pop(allocation.root, None)
        if allocation.state == RESIDENT:
            self._gone(allocation)
        moving = allocation.state in (LEAVING, COMING)
        allocation.state = GONE
        if not moving:
            self.forget_backing(allocation)
        self.changed = True

    def forget_backing(self, allocation: Allocation) -> None:
        """The bytes elsewhere are not those of the allocation any more, or not needed."""
        if isinstance(allocation.backing, Extent):
            self.file.release(allocation.backing)
        allocation.backing = None

    def deliver(self, allocation: Allocation, slot: int) -> Any:
        """What is away, for the caller. What lies in the file stays there for as long as the caller has it."""
        return delivered(allocation.backing, allocation.views.get(slot), self.file)

    # ---- moves ------------------------------------------------------------------------------------------------

    def bring_in(self, allocation: Allocation) -> None:
        """Start to bring back what is away; its bytes count from now on."""
        self.holds(allocation)
        allocation.state = COMING
        self._begin(Move(allocation, False, allocation.backing))

    def move_out(self, allocation: Allocation) -> None:
        """Make room: at once if the same bytes are elsewhere, else by a move."""
        if allocation.backing is not None:
            self._left(allocation)
            return
        backing = self.file.reserve(allocation.nbytes) if allocation.place == HOST else None
        allocation.state = LEAVING
        self._begin(Move(allocation, True, backing))

    def _begin(self, move: Move) -> None:
        owner = move.allocation.owner
        self.spaces[move.allocation.place].moving += 1
        owner.state.active += 1
        owner.moves[move.kind].append(move)
        owner.state.look_at(move.kind)
        self._announce(owner.state)

    def undo(self, move: Move) -> None:
        """A move that has not begun is not needed: its run ends."""
        allocation = move.allocation
        self._over(move)
        if move.out:
            if isinstance(move.backing, Extent):
                self.file.release(move.backing)
            if allocation.state == LEAVING:
                allocation.state = RESIDENT
            else:
                self._gone(allocation)
        else:
            self._gone(allocation)
            if allocation.state == COMING:
                allocation.state = AWAY
            else:
                self.forget_backing(allocation)

    def moved(self, move: Move, error: BaseException | None) -> None:
        """A move has ended."""
        allocation = move.allocation
        if error is not None or (move.out and allocation.fixed):
            if move.out:
                allocation.fixed = True  # there is nowhere to put it, or it has become part of what cannot be moved
            elif allocation.state == COMING:
                self.undo(move)
                owner = allocation.owner
                assert error is not None
                owner.state.errors.append((-1, error, -1))
                owner.state.stop("what was moved out could not be brought back")
                return
            self.undo(move)
            return
        self._over(move)
        space = self.spaces[allocation.place]
        if move.out:
            space.moved_out += allocation.nbytes
            allocation.owner.moved_out[allocation.place] += allocation.nbytes
            allocation.backing = move.backing
            if allocation.state == LEAVING:
                self._left(allocation)
            else:
                self._gone(allocation)
                self.forget_backing(allocation)
            return
        if not isinstance(move.backing, Filled):
            space.moved_in += allocation.nbytes
            allocation.owner.moved_in[allocation.place] += allocation.nbytes
        if allocation.state != COMING:
            self._gone(allocation)
            self.forget_backing(allocation)
            self.dead.extend(move.values.values())
            return
        allocation.state = RESIDENT
        values, owner = allocation.owner.state.values, allocation.owner
        for slot, value in move.values.items():
            if slot in allocation.slots:
                values[slot] = value
        owner.rooted(allocation)
        if not isinstance(allocation.backing, Extent) and allocation.place == HOST:
            self.forget_backing(allocation)

    def _over(self, move: Move) -> None:
        self.spaces[move.allocation.place].moving -= 1
        move.allocation.owner.state.active -= 1
        self.changed = True

    def _left(self, allocation: Allocation) -> None:
        owner = allocation.owner
        values = owner.state.values
        for slot in allocation.slots:
            self.dead.append(values[slot])
            values[slot] = None
        owner.by_root.pop(allocation.root, None)
        allocation.root = 0
        self._gone(allocation)
        allocation.state = AWAY
        self.changed = True

    def _gone(self, allocation: Allocation) -> None:
        allocation.owner.here[allocation.place].pop(allocation, None)
        allocation.owner.in_use[allocation.place] -= allocation.nbytes
        self.spaces[allocation.place].held -= allocation.nbytes

    # ---- the queue --------------------------------------------------------------------------------------------

    def claim(self, owner: Residency, position: int) -> None:
        """A place in the queue for an item; its turn may come at once."""
        places = tuple(place for place in owner.part.places[position] if self.spaces[place].limit is not None)
        self._queue(Claim(owner, position, places, owner.state.priority, self._next()))

    def lease(self, place: int, nbytes: int, priority: int, on_granted: Callable[[], None]) -> Claim:
        """A place in the queue for a lease."""
        claim = Claim(None, -1, (place,), priority, self._next(), {place: nbytes}, on_granted)
        self._queue(claim)
        return claim

    def end_lease(self, claim: Claim) -> None:
        """The lease's bytes are free, or no longer waited for."""
        if claim in self.claims:
            self.withdraw(claim)
        else:
            for place, nbytes in claim.wanted.items():
                self.spaces[place].leased -= nbytes
        self.changed = True

    def claim_of(self, owner: Residency, position: int) -> Claim | None:
        """The item's place in the queue."""
        return next((claim for claim in self.claims if claim.owner is owner and claim.position == position), None)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _queue(self, claim: Claim) -> None:
        self.claims.append(claim)
        self.claims.sort(key=lambda each: (not each.turn, -each.priority, each.number))
        self._take_turns()

    def withdraw(self, claim: Claim) -> None:
        """Not waited for any more; what was put aside is free."""
        self.claims.remove(claim)
        self._end_turn(claim)
        self.changed = True

    def _end_turn(self, claim: Claim) -> None:
        if claim.turn and claim.owner is not None:
            claim.owner.pin(claim.position, -1)
        claim.turn = False
        for place in claim.places:
            self.spaces[place].reserved -= claim.gathered[place]
            claim.gathered[place] = 0

    def settle(self) -> None:
        """After any change: turns are taken as far as they go, and lanes look again at what waited."""
        while self.changed:
            self.changed = False
            for claim in self.claims:
                claim.stuck = False
            self._take_turns()
            for state, residency in list(self.runs.items()):
                waiting = False
                for positions in filter(None, residency.waiting):
                    waiting = True
                    for position in positions:
                        state.make_ready(position)
                    positions.clear()
                if waiting and not state.stopping:
                    self._announce(state)

    def _take_turns(self) -> None:
        again = True
        while again:
            again = False
            taken: set[int] = set()
            for claim in list(self.claims):
                if taken.isdisjoint(claim.places):
                    if self._advance(claim):
                        again = True
                        break
                    if claim.stuck:
                        continue
                taken.update(claim.places)
            if not again:
                again = self._refuse()

    def _advance(self, claim: Claim) -> bool:
        """Put aside what is free, move away what can go; whether the claim is served and gone."""
        if not claim.turn:
            claim.turn = True
            if claim.owner is not None:
                claim.owner.pin(claim.position, 1)
        owner = claim.owner
        wanted, missing, guess = claim.wanted, list[Allocation](), False
        if owner is not None:
            wanted, missing, guess = owner.needs(claim.position)
        complete = not guess or all(not self.spaces[place].unsized for place in claim.places)
        for place in claim.places:
            if place in self.lost or self._gather(claim, place, wanted.get(place, 0)):
                continue
            partly = guess and not self._in_motion(place)
            if not self._make_room(claim, place, wanted.get(place, 0), partly):
                coming = sum(each.nbytes for each in missing if each.place == place and each.state != COMING)
                if self._in_motion(place):
                    complete = False
                elif not guess or claim.gathered[place] < coming:
                    claim.stuck = True  # else it is all that can be had, for a size that nobody knows
        if claim.stuck:
            self._end_turn(claim)
            return False
        if not complete:
            return False
        for allocation in missing:
            if allocation.state == AWAY:
                claim.gathered[allocation.place] -= allocation.nbytes
                self.spaces[allocation.place].reserved -= allocation.nbytes
                self.bring_in(allocation)
        if missing:
            return False
        self.claims.remove(claim)
        promised = dict(claim.gathered)
        self._end_turn(claim)
        if owner is None:
            claim.wanted = promised  # less than was asked for, of a device that is lost
            for place, nbytes in promised.items():
                self.spaces[place].leased += nbytes
                self.spaces[place].take(0)
            assert claim.on_granted is not None
            claim.on_granted()
        else:
            owner.grant(claim.position, promised, guess)
            heap = owner.waiting[owner.state.plan.kinds[claim.position]]
            if claim.position in heap:
                heap.remove(claim.position)
                owner.state.make_ready(claim.position)
            self._announce(owner.state)
        self.changed = True
        return True

    def _above(self, place: int) -> int:
        """How many items with room in a space started runs that wait in the queue: they end after those."""
        found: set[tuple[RunState, int]] = set()
        for claim in self.claims:
            above = None if claim.owner is None else claim.owner.state.parent
            while above is not None and above not in found:
                state, position = above
                grant = None if state.memory is None else state.memory.granted.get(position)
                if grant is not None and state.memory.arbiter is self and place in grant.promised:
                    found.add(above)
                above = state.parent
        return len(found)

    def _in_motion(self, place: int) -> bool:
        """Whether something will change of itself in a space: items run, bytes move, a run or a lease ends."""
        space = self.spaces[place]
        return bool(
            space.moving
            or (space.granted and space.granted > self._above(place))
            or space.leased
            or any(run.ends and run.in_use[place] for run in self.runs.values())
        )

    def _gather(self, claim: Claim, place: int, wanted: int) -> bool:
        """Put aside what is free; whether that is all."""
        space = self.spaces[place]
        more = wanted - claim.gathered[place]
        more = min(more, max(0, space.free))
        space.reserved += more
        claim.gathered[place] += more
        return claim.gathered[place] >= wanted

    def _make_room(self, claim: Claim, place: int, wanted: int, partly: bool) -> bool:
        """Move away what is not needed for longest, if that makes enough room; whether the room is there already.

        ``partly``: also if it is not enough.
        """
        short = wanted - claim.gathered[place]
        found: list[tuple[float, int, Allocation]] = []
        for residency in self.runs.values():
            if residency.ends:
                short -= residency.in_use[place]  # it ends, and all of it will be free
                continue
            for allocation in residency.here[place]:
                if allocation.state == LEAVING:
                    short -= allocation.nbytes
                    continue
                distance = residency.distance(allocation)
                if distance >= 0:
                    weight = distance * 2.0 if allocation.backing is not None and distance < NEVER else float(distance)
                    found.append((weight, allocation.nbytes, allocation))
        if short <= 0:
            return False
        found.sort(key=lambda each: (-each[0], -each[1]))
        chosen: list[Allocation] = []
        for _, nbytes, allocation in found:
            if short <= 0:
                break
            chosen.append(allocation)
            short -= nbytes
        if short > 0 and not partly:
            return False  # what runs now ends first, and its bytes may do
        for allocation in reversed(chosen.copy()):  # the nearest first: a large one may have made small ones needless
            if short + allocation.nbytes <= 0:
                short += allocation.nbytes
                chosen.remove(allocation)
        for allocation in chosen:
            self.move_out(allocation)
        return self._gather(claim, place, wanted)

    def _refuse(self) -> bool:
        """When all that wait for a space are stuck and nothing in it moves: the last in the queue gets OutOfMemory."""
        for claim in reversed(self.claims):
            if not claim.stuck or claim.owner is None:
                continue
            rivals = [other for other in self.claims if not set(other.places).isdisjoint(claim.places)]
            still = not any(self._in_motion(place) for place in claim.places)
            if still and all(other.stuck for other in rivals):
                error = shortage(self, claim)
                self.claims.remove(claim)
                self._end_turn(claim)
                self._fail(claim, error)
                return True
        return False

    def _fail(self, claim: Claim, error: OutOfMemory) -> None:
        owner = claim.owner
        assert owner is not None
        state = owner.state
        kind = state.plan.kinds[claim.position]
        for heap in (state.ready[kind], owner.waiting[kind]):
            if claim.position in heap:
                heap.remove(claim.position)
                heap.sort()
        state.fail(claim.position, error, -1, self.dead)
        self.changed = True
        self._announce(state)
