"""The default placement: several schedules are made and simulated, the best are improved, and one is kept.

Candidates are HEFT's and its relatives (Topcuoglu, Hariri, Wu 2002), what balances kinds of devices (``balance.py``),
what locality gives, and one device for all. What is compared is always the simulated run, in which devices take ready
items as they come.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
from plait.graph.analysis import upward_rank
from plait.scheduler.policies.balance import cheapest_in_time, prices, settled_order
from plait.scheduler.policies.improve import again, backwards, shifted
from plait.scheduler.policies.kinds import within_kinds
from plait.scheduler.policies.online import online, pull_own, push_where_first_done
from plait.scheduler.policies.place import append, insert
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem, Schedule
from plait.scheduler.policies.rank import fastest, ordered, upward_and_downward
from plait.scheduler.policies.reserve import reserve
from plait.scheduler.policies.simulate import simulate

# Steps of planning a graph, of about a microsecond each; they are counted, so that plans are the same anywhere.
_BUDGET = 1_600_000
_MOST = 1_500  # of them an item
_MAKING = 0.6  # the share of it in which schedules are made; the rest improves them
_RUN, _INTO_GAPS = 6, 8  # steps an item of a simulated run, and of finding gaps, besides one a device
_TARGETS = (0.97, 0.97, 0.97, 0.95, 0.98, 0.97)  # of improvements, over the makespan that they begin with
_IMPROVED = 4  # schedules that are improved; after every second time the better half goes on
_SHIFTED = 3  # others that are only shifted

_Candidate = tuple[int, Callable[[], Schedule]]


def best(problem: Problem, order: IntArray) -> Schedule:
    """The schedule whose simulated makespan is the smallest; the first of those that tie.

    It costs one to two milliseconds an item for some hundred items on a dozen devices, 0.2 for ten thousand
    (``benchmarks/policies.py``).
    """
    if problem.devices == 1 or not problem.items:
        return append(problem, order)
    budget = min(_BUDGET, _MOST * problem.items)
    steps, found = 0, []
    for number, (cost, make) in enumerate(_candidates(problem, order)):
        steps += cost * problem.items
        if number >= 2 and steps > budget * _MAKING:
            break
        found.append(make())
    found.sort(key=lambda schedule: schedule.makespan)
    return _improved(problem, found, (budget - steps) // ((_within(problem) + 2 * _RUN) * problem.items))


def keeping_order(place: Callable[[Problem, IntArray], Schedule], problem: Problem, order: IntArray) -> Schedule:
    """The placement of ``place``, run in ``order`` whatever order it came from."""
    return simulate(problem, place(problem, order).device, order)


def _improved(problem: Problem, found: list[Schedule], times: int) -> Schedule:
    """The shortest of ``found``, which are sorted, and of what at most ``times`` improvements make of them."""
    if times <= 0:
        return found[0]
    turned = backwards(problem)
    leaders = [(schedule, schedule) for schedule in _apart(found)[:_IMPROVED]]  # each with the best that came of it
    for number, target in enumerate(_TARGETS):
        for place, (last, kept) in enumerate(leaders[: max(0, times)]):
            made = again(problem, turned, last, target * kept.makespan)
            leaders[place] = made, min(kept, made, key=_makespan)
        times -= len(leaders)
        leaders.sort(key=lambda leader: leader[1].makespan)
        if number % 2:
            del leaders[(len(leaders) + 1) // 2 :]
    ends = [shifted(problem, turned, schedule) for schedule in [kept for _, kept in leaders] + found[:_SHIFTED]]
    return min(ends, key=_makespan)


def _within(problem: Problem) -> int:
    """Steps an item of a schedule within kinds."""
    kinds: int = problem.cost.shape[1]
    return 25 + 3 * kinds


def _makespan(schedule: Schedule) -> float:
    return schedule.makespan


def _apart(found: list[Schedule]) -> list[Schedule]:
    """Those of sorted schedules that differ in their makespan."""
    return [
        one for one, before in zip(found, [None, *found], strict=False) if not before or one.makespan > before.makespan
    ]


def _candidates(problem: Problem, order: IntArray) -> Iterator[_Candidate]:
    """Steps an item that a schedule costs, and what makes it; the most promising first."""
    heft = insert(problem, order)
    by_fastest = ordered(problem, fastest(problem))
    balanced = _Balanced(problem, by_fastest, heft.makespan)
    placing = _INTO_GAPS + problem.devices
    moving = placing + _within(problem) + _RUN
    several = problem.devices > problem.cost.shape[1]

    def run(schedule: Schedule) -> Schedule:
        return simulate(problem, schedule.device, schedule.order)

    def balancing(*shares: float) -> Iterator[_Candidate]:
        for share in shares:
            for by_load in (False, True):
                yield moving, functools.partial(balanced.moved, share, by_load)
                yield _RUN, functools.partial(balanced.placed, share, by_load)

    yield placing + _RUN, lambda: run(heft)
    # Where a kind has one device, choosing devices anew within kinds has little to choose.
    yield from balancing(0.45, *((0.75, 0.15) if several else ()))
    yield _RUN, lambda: simulate(problem, heft.device, settled_order(problem, heft.device))
    yield from _alone(problem, order)
    yield placing + _RUN, lambda: run(insert(problem, by_fastest))
    yield placing + _RUN, lambda: run(reserve(problem, order))
    yield placing + _RUN, lambda: run(insert(problem, ordered(problem, upward_and_downward(problem))))
    yield placing + _RUN, lambda: run(reserve(problem, by_fastest))
    yield from balancing(*(() if several else (0.75, 0.15)), 0.6, 0.3, 0.0, 1.0)
    yield placing + _RUN, lambda: run(append(problem, order))
    yield placing + _RUN, lambda: run(online(problem, order, push_where_first_done, pull_own))
    yield placing + _RUN, lambda: run(balanced.cheap(0.4, True, order))


class _Balanced:
    """Schedules that balance kinds of devices. The target of each lies by a share between a lower bound of the makespan
    and ``reached``, a makespan that is known to be possible."""

    def __init__(self, problem: Problem, order: IntArray, reached: float) -> None:
        self._problem = problem
        self._order = order
        self._reached = reached
        self._settled = functools.cache(self._settle)

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

    def moved(self, share: float, by_load: bool) -> Schedule:
        """On devices chosen anew within the kinds."""
        moved = within_kinds(self._problem, *self._settled(share, by_load))
        return simulate(self._problem, moved.device, moved.order)


def _alone(problem: Problem, order: IntArray) -> Iterator[_Candidate]:
    """Everything on the one device that needs least time for it, if any can take it all: where links are slow."""
    total = problem.seconds.sum(axis=0)
    device = int(total.argmin())
    if np.isfinite(total[device]) and any(delay is not None for delay in problem.delays):
        yield _RUN, lambda: simulate(problem, np.full(problem.items, device, dtype=np.int64), order)
