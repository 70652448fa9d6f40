"""The queue of items and leases that need room, and whose turn it is.

An item that leads its run, and for which there is no room, gets a place in the queue. One at a time in each space has
its turn: what becomes free is put aside for it, and what is not in use is moved away, that first which is not needed
for longest (Belady, IBM Systems Journal 1966), until it fits. As every item in turn fits alone, all come to their end,
whatever their priorities; who cannot go on because others hold what cannot be moved lets the next one try.
Every method is called with the dispatcher's lock held, and none waits or copies.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from plait.errors import OutOfMemory
from plait.scheduler.memory.allocation import AWAY, COMING, LEAVING, Allocation
from plait.scheduler.memory.claim import Claim
from plait.scheduler.memory.needs import needs
from plait.scheduler.memory.residency import NEVER, Residency
from plait.scheduler.memory.shortage import shortage

if TYPE_CHECKING:
    from plait.scheduler.memory.arbiter import Arbiter
    from plait.scheduler.state import RunState


class Turns:
    """The claims of one scheduler, in each space the most urgent first, and among equals the oldest."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter
        self._queues: list[list[Claim]] = [[] for _ in arbiter.spaces]
        self._number = 0
        self._nested = 0  # claims of runs that an item started

    @property
    def claims(self) -> list[Claim]:
        """All that wait, by urgency and age."""
        return sorted({claim for queue in self._queues for claim in queue}, key=_rank)

    def claim(self, owner: Residency, position: int) -> None:
        """A place in the queue for an item; its turn may come at once."""
        spaces = self._arbiter.spaces
        places = tuple(place for place in owner.part.places[position] if spaces[place].limit is not None)
        claim = Claim(owner, position, places, owner.state.priority, self._next())
        owner.claims[position] = claim
        self._queue(claim)

    def lease(self, place: int, nbytes: int, priority: int, on_granted: Callable[[], None]) -> Claim:
        """A place in the queue for a lease."""
        claim = Claim(None, -1, (place,), priority, self._next(), {place: nbytes}, on_granted)
        self._queue(claim)
        return claim

    def end_lease(self, claim: Claim) -> None:
        """The lease's bytes are free, or no longer waited for."""
        if any(claim in self._queues[place] for place in claim.places):
            self.withdraw(claim)
            return
        for place, nbytes in claim.wanted.items():
            self._arbiter.spaces[place].leased -= nbytes
        self._arbiter.changed.update(claim.places)

    def withdraw(self, claim: Claim) -> None:
        """Not waited for any more; what was put aside is free."""
        self._remove(claim)
        self._arbiter.changed.update(claim.places)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _queue(self, claim: Claim) -> None:
        for place in claim.places:
            insort(self._queues[place], claim, key=_rank)
        if claim.owner is not None and claim.owner.state.parent is not None:
            self._nested += 1
            self._arbiter.changed.update(range(len(self._queues)))  # what its parents hold will not be free before
        self._advance_if_first(claim)
        if claim.stuck:
            self._arbiter.changed.update(claim.places)

    def _remove(self, claim: Claim) -> None:
        for place in claim.places:
            self._queues[place].remove(claim)
        if claim.owner is not None:
            del claim.owner.claims[claim.position]
            self._nested -= claim.owner.state.parent is not None
        self._end_turn(claim)

    def _end_turn(self, claim: Claim) -> None:
        if claim.turn and claim.owner is not None:
            claim.owner.pin(claim.position, -1)
        claim.turn = False
        for place in claim.places:
            self._arbiter.spaces[place].reserved -= claim.gathered[place]
            claim.gathered[place] = 0

    # ---- whose turn it is -------------------------------------------------------------------------------------

    def take(self, places: Iterable[int]) -> None:
        """In these spaces something has changed: those in turn go on as far as they can."""
        stuck: list[Claim] = []
        for place in places:
            for claim in self._in_turn(place):
                was = claim.stuck
                self._advance_if_first(claim)
                if not claim.stuck:
                    break
                stuck.append(claim)
                if not was:  # it lets others try, in all its spaces
                    self._arbiter.changed.update(claim.places)
        if stuck and not self._arbiter.changed:
            self._refuse(stuck)

    def _in_turn(self, place: int) -> Iterator[Claim]:
        """The claims in a space as they may try: who has had a turn first."""
        queue = self._queues[place]
        return iter([claim for claim in queue if claim.turn] + [claim for claim in queue if not claim.turn])

    def _advance_if_first(self, claim: Claim) -> None:
        claim.stuck = False
        for place in claim.places:
            for other in self._in_turn(place):
                if other is claim:
                    break
                if not other.stuck:
                    return
        self._advance(claim)

    def _advance(self, claim: Claim) -> None:
        """Put aside what is free, move away what can go; serve the claim when that is enough."""
        spaces = self._arbiter.spaces
        owner = claim.owner
        if not claim.turn:
            claim.turn = True
            if owner is not None:
                owner.pin(claim.position, 1)
        wanted, missing, guess = claim.wanted, list[Allocation](), False
        if owner is not None:
            wanted, missing, guess = needs(owner, claim.position)
        complete = not guess or all(not spaces[place].unsized for place in claim.places)
        for place in claim.places:
            if place in self._arbiter.lost or self._gather(claim, place, wanted.get(place, 0)):
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
        if claim.stuck or not complete:
            return
        for allocation in missing:
            if allocation.state == AWAY:
                claim.gathered[allocation.place] -= allocation.nbytes
                spaces[allocation.place].reserved -= allocation.nbytes
                self._arbiter.moves.bring_in(allocation)
        if not missing:
            self._serve(claim, guess)

    def _serve(self, claim: Claim, guess: bool) -> None:
        """All that the claim needs is there."""
        promised = dict(claim.gathered)
        self._remove(claim)
        self._arbiter.changed.update(place for place in claim.places if self._queues[place])
        if claim.owner is not None:
            claim.owner.grant(claim.position, promised, guess)
            claim.owner.wake([claim.position])
            return
        claim.wanted = promised  # less than was asked for, of a device that is lost
        for place, nbytes in promised.items():
            self._arbiter.spaces[place].leased += nbytes
            self._arbiter.spaces[place].take(0)
        assert claim.on_granted is not None
        claim.on_granted()

    def _above(self, place: int) -> int:
        """How many items with room in a space started runs that wait in the queue: they end after those."""
        if not self._nested:
            return 0
        found: set[tuple[RunState, int]] = set()
        for claim in self.claims:
            above = None if claim.owner is None else claim.owner.state.parent
            while above is not None and above not in found:
                state, position = above
                grant = None if state.memory is None else state.memory.granted.get(position)
                if grant is not None and state.memory.arbiter is self._arbiter and place in grant.promised:
                    found.add(above)
                above = state.parent
        return len(found)

    def _in_motion(self, place: int) -> bool:
        """Whether something will change of itself in a space: items run, bytes move, a run or a lease ends."""
        space = self._arbiter.spaces[place]
        return bool(
            space.moving
            or (space.granted and space.granted > self._above(place))
            or space.leased
            or any(run.ends and run.in_use[place] for run in self._arbiter.runs.values())
        )

    def _gather(self, claim: Claim, place: int, wanted: int) -> bool:
        """Put aside what is free; whether that is all."""
        space = self._arbiter.spaces[place]
        more = min(wanted - claim.gathered[place], max(0, space.free))
        space.reserved += more
        claim.gathered[place] += more
        return claim.gathered[place] >= wanted

    # ---- room -------------------------------------------------------------------------------------------------

    def _make_room(self, claim: Claim, place: int, wanted: int, partly: bool) -> bool:
        """Move away what is not needed for longest, if that makes enough room; whether the room is there already.

        ``partly``: also if it is not enough.
        """
        short = wanted - claim.gathered[place]
        found: list[tuple[float, int, Allocation]] = []
        for residency in self._arbiter.runs.values():
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
            self._arbiter.moves.move_out(allocation)
        return self._gather(claim, place, wanted)

    def _refuse(self, stuck: list[Claim]) -> None:
        """When all that wait for a space are stuck and nothing in it moves: the last in the queue gets OutOfMemory."""
        for claim in sorted(stuck, key=_rank, reverse=True):
            rivals = (rival for place in claim.places for rival in self._queues[place])
            still = not any(self._in_motion(place) for place in claim.places)
            if claim.owner is not None and still and all(rival.stuck for rival in rivals):
                error = shortage(self._arbiter, claim)
                self._remove(claim)
                self._arbiter.changed.update(claim.places)
                self._fail(claim.owner, claim.position, error)
                return

    def _fail(self, owner: Residency, position: int, error: OutOfMemory) -> None:
        state = owner.state
        owner.wake([position], ready=False)
        heap = state.ready[state.plan.kinds[position]]
        if position in heap:
            heap.remove(position)
            heap.sort()
        state.fail(position, error, -1, self._arbiter.dead)
        self._arbiter.announce(state)


def _rank(claim: Claim) -> tuple[int, int]:
    return -claim.priority, claim.number
