"""Schedulers with one thing broken: what exploration is tested with. Each breaks it inside its ``with`` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, nlargest
from typing import Any
from unittest import mock

import numpy as np
from plait.graph import program
from plait.graph.edges import WAR, Edges
from plait.scheduler import expand
from plait.scheduler.device_lanes import DeviceLanes
from plait.scheduler.state import RunState


@contextmanager
def a_dropped_wait() -> Iterator[None]:
    """A device item does not wait for the last of the events that it should."""
    waits = DeviceLanes.waits_for

    def fewer(self: Any, state: Any, position: int, tail: Any) -> list[Any]:
        return waits(self, state, position, tail)[:-1]

    with mock.patch.object(DeviceLanes, "waits_for", fewer):
        yield


@contextmanager
def a_buffer_freed_too_early() -> Iterator[None]:
    """A value is let go of when all of its users but one are done."""
    count_from = RunState.count_from

    def miscounted(self: RunState, cursor: int) -> None:
        count_from(self, cursor)
        self.uses = [uses - 1 if uses > 2 else uses for uses in self.uses]

    with mock.patch.object(RunState, "count_from", miscounted):
        yield


@contextmanager
def a_priority_inverted() -> Iterator[None]:
    """Of what is ready, the least urgent goes first."""
    peek = RunState.peek

    def least(self: RunState, kind: int) -> int:
        ready = self.ready[kind]
        if len(ready) > 1:
            last = nlargest(1, ready)[0]
            ready.remove(last)
            ready.insert(0, last)
        position = peek(self, kind)
        if position < 0 or (ready and ready[0] != position):
            heapify(ready)
        return position

    def pop(self: RunState, kind: int) -> int:
        position = self.peek(kind)
        if position >= 0:
            self.ready[kind].remove(position)
            heapify(self.ready[kind])
            for name in self.plan.groups.get(position, ()):
                self.group_use[name] += 1
            self.status[position] = 1
            self.active += 1
        return position

    with mock.patch.object(RunState, "peek", least), mock.patch.object(RunState, "pop", pop):
        yield


@contextmanager
def a_forgotten_hazard() -> Iterator[None]:
    """A write does not wait for those who read what was there before."""
    derive = expand.derive

    def forgetful(*args: Any) -> Edges:
        edges = derive(*args)
        return edges.keep(np.asarray(edges.kinds != WAR))

    with mock.patch.object(program, "derive", forgetful), mock.patch.object(expand, "derive", forgetful):
        yield


@contextmanager
def a_lost_wake_up() -> Iterator[None]:
    """An item that is done does not tell the last of several that wait for it."""
    take_wait = RunState.take_wait

    def deaf(self: RunState, successors: list[int]) -> None:
        take_wait(self, successors[:-1] if len(successors) > 2 else successors)

    with mock.patch.object(RunState, "take_wait", deaf):
        yield


@contextmanager
def a_stale_replica() -> Iterator[None]:
    """A replica counts as valid for good once it has been made."""
    make_valid = expand._Expander._make_valid

    def lazy(self: Any, item: Any, place: int, index: int, mode: int, whole: bool) -> None:
        if place and index in self.slots[place]:
            self.valid[index] |= 1 << place
            return
        make_valid(self, item, place, index, mode, whole)

    with mock.patch.object(expand._Expander, "_make_valid", lazy):
        yield


MUTANTS: dict[str, Callable[[], Any]] = {
    mutant.__name__: mutant
    for mutant in (
        a_dropped_wait,
        a_buffer_freed_too_early,
        a_priority_inverted,
        a_forgotten_hazard,
        a_lost_wake_up,
        a_stale_replica,
    )
}
