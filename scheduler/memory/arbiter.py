"""The limited memory of one scheduler: its spaces, the runs that hold bytes in them, and what has changed in which.

Every method is called with the dispatcher's lock held, and none waits or copies.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from plait.scheduler.memory.alike import Alike
from plait.scheduler.memory.allocation import COMING, GONE, LEAVING, RESIDENT, Allocation
from plait.scheduler.memory.backing import delivered
from plait.scheduler.memory.moves import Moves
from plait.scheduler.memory.residency import Residency
from plait.scheduler.memory.space import Space
from plait.scheduler.memory.spill import Extent, SpillFile
from plait.scheduler.memory.turns import Turns

if TYPE_CHECKING:
    from plait.scheduler.state import RunState


class Arbiter:
    """``announce`` makes lanes look at a run again.

    ``changed`` are the spaces in which bytes may have become free or movable, ``led`` those in which another item
    leads its run now; ``settle`` looks at these alone, so with many devices a change costs no more than with one.
    """

    def __init__(self, names: tuple[str, ...], limits: list[int | None], announce: Callable[[RunState], None]) -> None:
        self.spaces = [Space(name, limit) for name, limit in zip(names, limits, strict=True)]
        self.limited = [number for number, limit in enumerate(limits) if limit is not None]
        self.file = SpillFile()
        self.runs: dict[RunState, Residency] = {}
        self.changed: set[int] = set()
        self.led: set[int] = set()
        self.dead: list[Any] = []  # values to let go of without the lock
        self.announce = announce
        self.lost: set[int] = set()
        self.alike = Alike()
        self.now_ns: Callable[[], int] = perf_counter_ns
        self.moves = Moves(self)
        self.turns = Turns(self)

    def open(self, state: RunState, sizes: array[int] | None) -> Residency:
        """Count a run from now on."""
        residency = self.runs[state] = Residency(self, state, sizes)
        return residency

    def close(self, state: RunState) -> None:
        """A run has ended: all of it is free."""
        residency = self.runs.pop(state)
        residency.stopped()
        residency.close()

    def lose(self, place: int) -> None:
        """A device is lost: nothing is kept back for it, and what wants it fails of itself."""
        self.lost.add(place)
        for residency in self.runs.values():
            residency.lost()
        self.changed.add(place)

    def holds(self, allocation: Allocation) -> None:
        """New bytes are there, or on their way."""
        owner, place = allocation.owner, allocation.place
        owner.here[place][allocation] = None
        owner.in_use[place] += allocation.nbytes
        owner.peak[place] = max(owner.peak[place], owner.in_use[place])
        self.spaces[place].take(allocation.nbytes)

    def gone(self, allocation: Allocation) -> None:
        """The bytes are no longer in their place."""
        allocation.owner.here[allocation.place].pop(allocation, None)
        allocation.owner.in_use[allocation.place] -= allocation.nbytes
        self.spaces[allocation.place].held -= allocation.nbytes

    def drop(self, allocation: Allocation) -> None:
        """Nobody wants the bytes any more."""
        if allocation.root:
            allocation.owner.by_root.pop(allocation.root, None)
        if allocation.state == RESIDENT:
            self.gone(allocation)
        moving = allocation.state in (LEAVING, COMING)
        allocation.state = GONE
        if not moving:
            self.forget_backing(allocation)
        self.changed.add(allocation.place)

    def forget_backing(self, allocation: Allocation) -> None:
        """The bytes elsewhere are not those of the allocation any more, or not needed."""
        if isinstance(allocation.backing, Extent):
            self.file.release(allocation.backing)
        allocation.backing = None

    def deliver(self, allocation: Allocation, slot: int) -> Any:
        """What is away, for the caller. What lies in the file stays there for as long as the caller has it."""
        return delivered(allocation.backing, allocation.views.get(slot), self.file)

    @property
    def unsettled(self) -> bool:
        """Whether there is something to settle, or to let go of."""
        return bool(self.changed or self.led or self.dead)

    def settle(self) -> None:
        """After any change: turns are taken as far as they go, and lanes look again at what waited there."""
        while self.changed or self.led:
            changed, places = sorted(self.changed), sorted(self.changed | self.led)
            self.changed.clear()
            self.led.clear()
            self.turns.take(changed)
            for residency in list(self.runs.values()):
                for place in places:
                    residency.look_again(place)
