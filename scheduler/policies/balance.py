"""Placement that balances kinds of devices: what is cheap in machine time, as long as it ends early enough.

Each kind has a price for a second of it, by which all work costs least where the load is balanced (the dual of the
area bound). An item goes to the cheapest device on which it still ends by its latest time for a target makespan, else
to where it ends first. So accelerators are left to what they are good at, and the critical path still gets them.
Targets are tried one after the other (dual approximation: Hochbaum, Shmoys, JACM 1987). The kinds that come out are
kept, and devices are chosen anew in order of time (``kinds.py``).
"""

from __future__ import annotations

import numpy as np
from plait.graph.analysis import upward_rank
from plait.graph.machine_bounds import area_prices
from plait.scheduler.policies.place import Gaps, arrivals, by_start
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem, Schedule
from plait.scheduler.policies.rank import ordered

_GAPS = 40  # gaps of a device that are tried: in large graphs there are many, and few are long enough


def prices(problem: Problem) -> tuple[float, FloatArray]:
    """The area bound of the problem's kinds in seconds, and the price of a second on each device: float64, shape
    (devices,)."""
    kinds, count = np.unique(problem.kind, return_counts=True)
    by_kind = np.zeros(problem.cost.shape[1])
    bound, by_kind[kinds] = area_prices(kind_costs(problem)[:, kinds], count)
    return bound, np.asarray(by_kind[problem.kind], dtype=np.float64)


def kind_costs(problem: Problem) -> FloatArray:
    """The problem's costs with a pinned item confined to the kind of its device, and absent kinds to inf."""
    cost = problem.cost.copy()
    cost[:, np.setdiff1d(np.arange(cost.shape[1]), problem.kind)] = np.inf
    pinned = np.flatnonzero(problem.pin >= 0)
    there = problem.kind[problem.pin[pinned]]
    kept = cost[pinned, there]
    cost[pinned] = np.inf
    cost[pinned, there] = kept
    return cost


def cheapest_in_time(
    problem: Problem, order: IntArray, price: FloatArray, tails: FloatArray, target: float, *, by_load: bool = True
) -> Schedule:
    """In ``order``, each item where it is cheapest among the devices on which it ends by ``target`` less its tail.

    Where prices hardly differ (by 2 %: at the best prices some kernel costs the same on two kinds), the kind that has
    been given least time so far is taken if ``by_load``, else the device where it ends first.
    """
    items = problem.items
    seconds, allowed, alike = problem.seconds_lists, problem.allowed, problem.alike
    paid: list[float] = price.tolist()
    latest: list[float] = (target - tails).tolist()
    kind: list[int] = problem.kind.tolist()
    share: list[float] = (1.0 / np.maximum(np.bincount(problem.kind), 1)).tolist()
    given = [0.0] * len(share)
    start, finish, device = [0.0] * items, [0.0] * items, [0] * items
    gaps = Gaps(problem.devices, _GAPS)
    for item in order.tolist():
        ready = arrivals(problem, item, finish, device)
        limit = latest[item]
        in_time: list[tuple[float, float, float, int]] = []
        first = (np.inf, 0.0, -1)
        served = -1
        for there in allowed[item]:
            if alike[there] == served:
                continue
            cost = seconds[item][there]
            begin = gaps.earliest(there, ready[there], cost)
            if begin <= ready[there]:
                served = alike[there]  # no device like this one begins sooner
            end = begin + cost
            if end <= limit:
                in_time.append((paid[there] * cost, end, begin, there))
            if end < first[0]:
                first = (end, begin, there)
        end, begin, there = first
        if in_time:
            most = min(in_time)[0] * 1.02
            _, _, end, there, begin = min(
                (given[kind[d]] if by_load else 0.0, e, e, d, b) for p, e, b, d in in_time if p <= most
            )
        start[item], finish[item], device[item] = begin, end, there
        given[kind[there]] += seconds[item][there] * share[kind[there]]
        gaps.occupy(there, begin, end)
    return by_start(problem, order, start, finish, device)


def settled_order(problem: Problem, device: IntArray) -> IntArray:
    """The items by the longest path to the end in the seconds and delays that a placement has."""
    own = problem.seconds[np.arange(problem.items), device]
    return ordered(problem, upward_rank(problem.edges, own, settled_delays(problem, device)))


def settled_delays(problem: Problem, device: IntArray) -> FloatArray:
    """Seconds along each edge in a placement: float64, shape (edges,)."""
    source, target = device[problem.edges.source], device[problem.edges.target]
    taken: FloatArray = problem.latency[source, target] + problem.nbytes / problem.bandwidth[source, target]
    return taken
