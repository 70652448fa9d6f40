"""Moves between a limited space and where its bytes wait meanwhile: begun, ended, undone, and what follows from each.

Every method is called with the dispatcher's lock held, and none waits or copies: lanes carry the moves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.scheduler.expand import HOST
from plait.scheduler.memory.allocation import AWAY, COMING, LEAVING, RESIDENT, Allocation
from plait.scheduler.memory.backing import Filled
from plait.scheduler.memory.holding import came_back
from plait.scheduler.memory.move import Move
from plait.scheduler.memory.spill import Extent

if TYPE_CHECKING:
    from plait.scheduler.memory.arbiter import Arbiter


class Moves:
    """The moves of one scheduler."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter

    def bring_in(self, allocation: Allocation) -> None:
        """Start to bring back what is away; its bytes count from now on."""
        self._arbiter.holds(allocation)
        allocation.state = COMING
        self._begin(Move(allocation, False, allocation.backing))

    def move_out(self, allocation: Allocation) -> None:
        """Make room: at once if the same bytes are elsewhere, else by a move."""
        if allocation.backing is not None:
            self._left(allocation)
            return
        backing = self._arbiter.file.reserve(allocation.nbytes) if allocation.place == HOST else None
        allocation.state = LEAVING
        self._begin(Move(allocation, True, backing))

    def _begin(self, move: Move) -> None:
        owner = move.allocation.owner
        self._arbiter.spaces[move.allocation.place].moving += 1
        owner.state.active += 1
        owner.moves[move.kind].append(move)
        owner.state.look_at(move.kind)
        self._arbiter.announce(owner.state)

    def undo(self, move: Move) -> None:
        """A move that has not begun is not needed: its run ends."""
        allocation = move.allocation
        self._over(move)
        if move.out:
            if isinstance(move.backing, Extent):
                self._arbiter.file.release(move.backing)
            if allocation.state == LEAVING:
                allocation.state = RESIDENT
            else:
                self._arbiter.gone(allocation)
        else:
            self._arbiter.gone(allocation)
            if allocation.state == COMING:
                allocation.state = AWAY
            else:
                self._arbiter.forget_backing(allocation)

    def ended(self, move: Move, error: BaseException | None) -> None:
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
        space = self._arbiter.spaces[allocation.place]
        if move.out:
            space.moved_out += allocation.nbytes
            allocation.owner.moved_out[allocation.place] += allocation.nbytes
            allocation.backing = move.backing
            if allocation.state == LEAVING:
                self._left(allocation)
            else:
                self._arbiter.gone(allocation)
                self._arbiter.forget_backing(allocation)
            return
        if not isinstance(move.backing, Filled):
            space.moved_in += allocation.nbytes
            allocation.owner.moved_in[allocation.place] += allocation.nbytes
        if allocation.state != COMING:
            self._arbiter.gone(allocation)
            self._arbiter.forget_backing(allocation)
            self._arbiter.dead.extend(move.values.values())
            return
        allocation.state = RESIDENT
        values, owner = allocation.owner.state.values, allocation.owner
        for slot, value in move.values.items():
            if slot in allocation.slots:
                values[slot] = value
        came_back(owner, allocation)
        if not isinstance(allocation.backing, Extent) and allocation.place == HOST:
            self._arbiter.forget_backing(allocation)

    def _over(self, move: Move) -> None:
        self._arbiter.spaces[move.allocation.place].moving -= 1
        move.allocation.owner.state.active -= 1
        self._arbiter.changed.add(move.allocation.place)

    def _left(self, allocation: Allocation) -> None:
        owner = allocation.owner
        values = owner.state.values
        for slot in allocation.slots:
            self._arbiter.dead.append(values[slot])
            values[slot] = None
        owner.by_root.pop(allocation.root, None)
        allocation.root = 0
        self._arbiter.gone(allocation)
        allocation.state = AWAY
        self._arbiter.changed.add(allocation.place)
