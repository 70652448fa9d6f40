"""The default placement: several schedules are made and simulated, the best are improved, and one is kept.

Candidates are HEFT's and its relatives (Topcuoglu, Hariri, Wu 2002), what balances kinds of devices (``balance.py``),
what locality gives, and one device for all. The few best are shifted to the right and to the left again (Li, Willis,
EJOR 1992). What is compared is always the simulated run, in which devices take ready items as they come.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
from plait.graph.analysis import upward_rank
from plait.graph.edges import Edges
from plait.scheduler.policies.balance import cheapest_in_time, prices, settled_order
from plait.scheduler.policies.kinds import within_kinds
from plait.scheduler.policies.online import online, pull_own, push_where_first_done
from plait.scheduler.policies.place import append, insert
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem, Schedule
from plait.scheduler.policies.rank import fastest, inherited_priority, ordered, upward_and_downward
from plait.scheduler.policies.reserve import reserve
from plait.scheduler.policies.simulate import simulate

# Candidates times items times devices at most, which is about a second of planning. Three are made always.
_BUDGET = 360_000
_IMPROVED = 3


def best(problem: Problem, order: IntArray) -> Schedule:
    """The schedule whose simulated makespan is the smallest; the first of those that tie.

    It costs some milliseconds, and about a millisecond an item for some hundred items on a dozen devices, 0.1 for ten
    thousand (``benchmarks/policies.py``).
    """
    if problem.devices == 1 or not problem.items:
        return append(problem, order)
    budget = max(3, _BUDGET // (problem.items * problem.devices))
    found: list[Schedule] = []
    for number, make in enumerate(_candidates(problem, order)):
        if number >= budget:
            break
        found.append(make())
    found.sort(key=lambda schedule: schedule.makespan)
    if len(found) > 3 * _IMPROVED:
        backwards = _reversed(problem)
        found += [_shifted(problem, backwards, schedule) for schedule in found[:_IMPROVED]]
    return min(found, key=lambda schedule: schedule.makespan)


def keeping_order(place: Callable[[Problem, IntArray], Schedule], problem: Problem, order: IntArray) -> Schedule:
    """The placement of ``place``, run in ``order`` whatever order it came from."""
    return simulate(problem, place(problem, order).device, order)


def _candidates(problem: Problem, order: IntArray) -> Iterator[Callable[[], Schedule]]:
    heft = insert(problem, order)
    by_fastest = ordered(problem, fastest(problem))
    balanced = _Balanced(problem, by_fastest, heft.makespan)

    def run(schedule: Schedule) -> Schedule:
        return simulate(problem, schedule.device, schedule.order)

    yield lambda: run(heft)
    yield lambda: run(reserve(problem, order))
    yield functools.partial(balanced.moved, 0.4, True)
    yield functools.partial(balanced.moved, 0.4, False)
    yield functools.partial(balanced.moved, 0.7, True)
    yield functools.partial(balanced.moved, 0.2, False)
    yield lambda: simulate(problem, heft.device, settled_order(problem, heft.device))
    yield from _alone(problem, order)
    yield lambda: run(insert(problem, by_fastest))
    for share in (0.4, 0.7, 0.2, 0.0, 0.55, 0.85, 1.0):
        for by_load in (True, False):
            yield functools.partial(balanced.placed, share, by_load)
            yield functools.partial(balanced.moved, share, by_load)
    yield lambda: run(reserve(problem, by_fastest))
    yield lambda: run(append(problem, order))
    yield lambda: run(insert(problem, ordered(problem, upward_and_downward(problem))))
    yield lambda: run(online(problem, order, push_where_first_done, pull_own))
    yield lambda: run(balanced.cheap(0.4, True, order))


class _Balanced:
    """Schedules that balance kinds of devices, each made once. The target of each lies by a share between a lower bound
    of the makespan and ``reached``, a makespan that is known to be possible."""

    def __init__(self, problem: Problem, order: IntArray, reached: float) -> None:
        self._problem = problem
        self._order = order
        self._reached = reached
        self._settled = functools.cache(self._settle)
        self.moved = functools.cache(self._move)

    @functools.cached_property
    def _given(self) -> tuple[FloatArray, float, FloatArray]:
        """Prices by device, a lower bound of the makespan, and for each item the least time after its end."""
        problem = self._problem
        least = problem.seconds.min(axis=1)
        rank = upward_rank(problem.edges, least)
        area, price = prices(problem)
        return price, max(float(rank.max()), area), rank - least

    def cheap(self, share: float, by_load: bool, order: IntArray) -> Schedule:
        price, floor, tails = self._given
        target = floor + share * (self._reached - floor)
        return cheapest_in_time(self._problem, order, price, tails, target, by_load=by_load)

    def _settle(self, share: float, by_load: bool) -> tuple[IntArray, IntArray]:
        device = self.cheap(share, by_load, self._order).device
        return device, settled_order(self._problem, device)

    def placed(self, share: float, by_load: bool) -> Schedule:
        """On the devices that were chosen."""
        return simulate(self._problem, *self._settled(share, by_load))

    def _move(self, share: float, by_load: bool) -> Schedule:
        """On devices chosen anew within the kinds."""
        moved = within_kinds(self._problem, *self._settled(share, by_load))
        return simulate(self._problem, moved.device, moved.order)


def _alone(problem: Problem, order: IntArray) -> Iterator[Callable[[], Schedule]]:
    """Everything on the one device that needs least time for it, if any can take it all: where links are slow."""
    total = problem.seconds.sum(axis=0)
    device = int(total.argmin())
    if np.isfinite(total[device]) and any(delay is not None for delay in problem.delays):
        yield lambda: simulate(problem, np.full(problem.items, device, dtype=np.int64), order)


def _reversed(problem: Problem) -> Problem:
    edges = problem.edges
    by = np.lexsort((edges.target, edges.source))
    turned = Edges(edges.count, edges.target[by], edges.source[by], edges.kinds[by])
    return Problem(
        problem.cost,
        turned,
        problem.nbytes[by],
        problem.kind,
        problem.bandwidth.T.copy(),
        problem.latency.T.copy(),
        problem.pin,
        problem.priority,
    )


def _shifted(problem: Problem, backwards: Problem, schedule: Schedule) -> Schedule:
    """The schedule run from its end backwards, then forwards in the order that gives, while that makes it shorter."""
    priority = inherited_priority(problem)
    while True:
        late = simulate(backwards, schedule.device, np.lexsort((-schedule.rank, -schedule.finish)))
        order = np.lexsort((schedule.rank, late.makespan - late.finish, -priority)).astype(np.int64)
        shifted = simulate(problem, schedule.device, order)
        if not shifted.makespan < schedule.makespan * (1 - 1e-9):
            return schedule
        schedule = shifted
