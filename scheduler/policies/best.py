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
from plait.graph.machine_bounds import area_bound
from plait.scheduler.policies.balance import (
    cheapest_in_time,
    kind_costs,
    prices,
    settled_order,
    within_kinds,
)
from plait.scheduler.policies.online import online, pull_own, push_where_first_done
from plait.scheduler.policies.place import append, insert
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem, Schedule
from plait.scheduler.policies.rank import fastest, inherited_priority, ordered, upward_and_downward
from plait.scheduler.policies.simulate import simulate

# Candidates times items at most: about a second of planning, less on machines of few devices. Two are made always.
_BUDGET = 50_000
_IMPROVED = 3
# Targets as multiples of the lower bound; a middle one first, for large graphs try only some.
_TARGETS = (1.1, 1.0, 1.2, 1.05, 1.15, 1.4)


def best(problem: Problem, order: IntArray) -> Schedule:
    """The schedule whose simulated makespan is the smallest; the first of those that tie. Costs 10 to 400 microseconds
    an item, less for each in larger graphs."""
    if problem.devices == 1 or not problem.items:
        return append(problem, order)
    budget = max(2, _BUDGET // problem.items)
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
    heft = functools.cache(lambda: insert(problem, order))
    by_fastest = ordered(problem, fastest(problem))

    def run(schedule: Schedule) -> Schedule:
        return simulate(problem, schedule.device, schedule.order)

    def settled(schedule: Schedule) -> Schedule:
        return simulate(problem, schedule.device, settled_order(problem, schedule.device))

    yield lambda: run(heft())
    yield lambda: settled(heft())
    floor, tails = _floor(problem)
    price = prices(problem)
    shared = len(np.unique(problem.kind)) < problem.devices
    for target in _TARGETS:
        cheap = functools.cache(functools.partial(cheapest_in_time, problem, by_fastest, price, tails, target * floor))
        yield functools.partial(lambda cheap: settled(cheap()), cheap)
        if shared:
            yield functools.partial(
                lambda cheap: run(within_kinds(problem, cheap().device, settled_order(problem, cheap().device))), cheap
            )
        if target == _TARGETS[0]:
            yield lambda: run(insert(problem, by_fastest))
            yield from _alone(problem, order)
    yield lambda: run(append(problem, order))
    yield lambda: run(insert(problem, ordered(problem, upward_and_downward(problem))))
    yield lambda: run(online(problem, order, push_where_first_done, pull_own))
    yield lambda: run(cheapest_in_time(problem, order, price, tails, 1.1 * floor))


def _alone(problem: Problem, order: IntArray) -> Iterator[Callable[[], Schedule]]:
    """Everything on the one device that needs least time for it, if any can take it all: where links are slow."""
    total = problem.seconds.sum(axis=0)
    device = int(total.argmin())
    if np.isfinite(total[device]) and any(delay is not None for delay in problem.delays):
        yield lambda: simulate(problem, np.full(problem.items, device, dtype=np.int64), order)


def _floor(problem: Problem) -> tuple[float, FloatArray]:
    """A lower bound of the makespan, and for each item the least time after its end."""
    least = problem.seconds.min(axis=1)
    rank = upward_rank(problem.edges, least)
    kinds, count = np.unique(problem.kind, return_counts=True)
    return max(float(rank.max()), area_bound(kind_costs(problem)[:, kinds], count)), rank - least


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
