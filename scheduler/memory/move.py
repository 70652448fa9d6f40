"""A move of an allocation out of its space or back into it, as a lane carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from plait.scheduler.crossing import begin_out
from plait.scheduler.expand import HOST
from plait.scheduler.memory.allocation import Allocation, flat_bytes, root_of
from plait.scheduler.memory.backing import Backing, OnHost, made_on_host
from plait.scheduler.memory.spill import Extent, SpillFile

if TYPE_CHECKING:
    from plait.devices import LaunchQueue

COPY_LANE, IN_LANE, OUT_LANE = 1, 1, 2


class Move:
    """``out``: away from its place; else back. ``carry_out`` runs on a lane without the lock and waits for the copy."""

    __slots__ = ("allocation", "backing", "out", "values")

    def __init__(self, allocation: Allocation, out: bool, backing: Backing | None) -> None:
        self.allocation = allocation
        self.out = out
        self.backing = backing  # where to, or where from
        self.values: dict[int, Any] = {}  # in: by slot, once it is there

    @property
    def kind(self) -> int:
        """The kind of lane that carries it out."""
        place = self.allocation.place
        if place == HOST:
            return COPY_LANE
        return 3 * place + (OUT_LANE if self.out else IN_LANE)

    def carry_out(self, values: list[Any], file: SpillFile, queue: LaunchQueue | None) -> None:
        """Copy. Errors of the driver or the disk come out as they are, and the bytes stay where they were."""
        allocation = self.allocation
        if queue is not None:
            self._on_device(values, queue)
        elif self.out:
            assert isinstance(self.backing, Extent)
            root = next(root_of(values[slot]) for slot in allocation.slots if values[slot] is not None)
            file.write(self.backing, flat_bytes(root))
        else:
            assert self.backing is not None
            self.values = made_on_host(self.backing, dict(allocation.views), file)

    def _on_device(self, values: list[Any], queue: LaunchQueue) -> None:
        slot = next(iter(self.allocation.slots))
        if self.out:
            array, copies = begin_out(queue, values[slot])
            for copy in copies:
                copy.finish()
            self.backing = OnHost(array)
            return
        assert isinstance(self.backing, OnHost)
        array = np.asarray(self.backing.array, self.backing.array.dtype.newbyteorder("="), order="C")
        there = queue.empty(array.shape, array.dtype)
        queue.copy_in(there, array)
        event = queue.record()
        with queue.current("bringing back what made room"):
            event.synchronize()
        self.values = {slot: there}
