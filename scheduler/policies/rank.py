"""Urgency of items: ranks by the longest way to the end, and the order that priorities and edges allow."""

from __future__ import annotations

import numpy as np
from plait.graph.analysis import downward_rank, upward_rank
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem


def mean_cost(problem: Problem) -> FloatArray:
    """Seconds of each item, in the mean over the devices that it may run on: float64, shape (items,)."""
    seconds = problem.seconds
    finite = np.isfinite(seconds)
    total: FloatArray = np.where(finite, seconds, 0.0).sum(axis=1)
    return np.asarray(total / finite.sum(axis=1), dtype=np.float64)


def upward(problem: Problem) -> FloatArray:
    """HEFT's upward rank: the longest path to the end in mean costs and mean delays (Topcuoglu, Hariri, Wu, IEEE TPDS
    2002). Larger is more urgent."""
    return upward_rank(problem.edges, mean_cost(problem), problem.mean_delay)


def upward_and_downward(problem: Problem) -> FloatArray:
    """CPoP's rank: the longest path through each item in mean costs and delays (Topcuoglu, Hariri, Wu 2002)."""
    return upward(problem) + downward_rank(problem.edges, mean_cost(problem), problem.mean_delay)


def fastest(problem: Problem) -> FloatArray:
    """The longest path to the end where each item has the device that is fastest for it, and nothing is moved."""
    return upward_rank(problem.edges, problem.seconds.min(axis=1))


def recorded(problem: Problem) -> FloatArray:
    """Program order: what was recorded first goes first."""
    rank = np.empty(problem.items)
    rank[problem.topological] = -np.arange(problem.items, dtype=np.float64)
    return rank


def ordered(problem: Problem, urgency: FloatArray) -> IntArray:
    """The items, most urgent first: by the user's priority, then by ``urgency``, then as recorded.

    An item inherits the priority and the urgency of what waits for it, so the edges follow the order.
    """
    place = np.empty(problem.items, dtype=np.int64)
    place[problem.topological] = np.arange(problem.items)
    priority = _inherited(problem, problem.priority.astype(np.float64))
    return np.lexsort((place, -_inherited(problem, urgency), -priority)).astype(np.int64)


def inherited_priority(problem: Problem) -> FloatArray:
    """The user's priority of each item or of the most urgent that waits for it: float64, shape (items,)."""
    return _inherited(problem, problem.priority.astype(np.float64))


def _inherited(problem: Problem, values: FloatArray) -> FloatArray:
    edges = problem.edges
    if not np.any(values[edges.source] < values[edges.target]):
        return values
    raised: list[float] = values.tolist()
    successors = problem.successors
    for item in reversed(problem.topological):
        for successor, _ in successors[item]:
            raised[item] = max(raised[item], raised[successor])
    return np.array(raised, dtype=np.float64)
