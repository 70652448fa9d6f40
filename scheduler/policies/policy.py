"""A policy: how items are ordered, and how they are placed; two choices that go together in any pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plait.scheduler.policies.online import Pull, Push
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem, Schedule
from plait.scheduler.policies.rank import ordered


@dataclass(frozen=True)
class Policy:
    """A pure object that the planner asks; it never sees a device, a stream or the event loop.

    ``order`` gives each item's urgency, larger first: float64, shape (items,). ``place`` takes the items in the order
    of priority and urgency, int64 of shape (items,), and gives the schedule. A dynamic policy also has ``push`` (the
    device at which an item that has become ready should queue) and ``pull`` (queue and item that an idle device should
    take next, -1 and -1 for none); its ``place`` follows them through a simulated run.
    """

    name: str
    order: Callable[[Problem], FloatArray]
    place: Callable[[Problem, IntArray], Schedule]
    push: Push | None = None
    pull: Pull | None = None

    def __str__(self) -> str:
        return self.name

    def plan(self, problem: Problem) -> Schedule:
        """Where each item runs and in what order; the user's priorities and pins come first."""
        return self.place(problem, ordered(problem, self.order(problem)))
