"""The default placement: several schedules are made and simulated, and the best is kept."""

from __future__ import annotations

from collections.abc import Iterator

from plait.scheduler.policies.place import append, insert
from plait.scheduler.policies.problem import IntArray, Problem, Schedule
from plait.scheduler.policies.rank import fastest, ordered, upward_and_downward
from plait.scheduler.policies.simulate import simulate


def best(problem: Problem, order: IntArray) -> Schedule:
    """The candidate whose simulated makespan is the smallest; the first of those that tie."""
    if problem.devices == 1:
        return append(problem, order)
    kept: Schedule | None = None
    for candidate in _candidates(problem, order):
        for ranked in (candidate.order, order):
            simulated = simulate(problem, candidate.device, ranked)
            if kept is None or simulated.makespan < kept.makespan:
                kept = simulated
    assert kept is not None, "there is always a candidate"
    return kept


def _candidates(problem: Problem, order: IntArray) -> Iterator[Schedule]:
    yield insert(problem, order)
    yield append(problem, order)
    yield insert(problem, ordered(problem, fastest(problem)))
    yield insert(problem, ordered(problem, upward_and_downward(problem)))
