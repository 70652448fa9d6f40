"""Placement that balances kinds of devices: what is cheap in machine time, as long as it ends early enough.

Each kind has a price for a second of it, by which all work costs least where the load is balanced (the dual of the
area bound). An item goes to the cheapest device on which it still ends by its latest time for a target makespan, else
to where it ends first. So accelerators are left to what they are good at, and the critical path still gets them.
Targets are tried one after the other (dual approximation: Hochbaum, Shmoys, JACM 1987). The kinds that come out are
kept, and devices are chosen anew while the items are laid out in order of time (the two phases of Amaris, Lucarelli,
Mommessin, Trystram, Euro-Par 2017).
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from plait.graph.analysis import upward_rank
from plait.graph.machine_bounds import area_prices
from plait.scheduler.policies.place import Gaps, arrivals, by_start
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem, Schedule
from plait.scheduler.policies.rank import ordered


def prices(problem: Problem) -> FloatArray:
    """Price of a second on each device, from the area bound of the problem's kinds: float64, shape (devices,)."""
    kinds, count = np.unique(problem.kind, return_counts=True)
    by_kind = np.zeros(problem.cost.shape[1])
    by_kind[kinds] = area_prices(kind_costs(problem)[:, kinds], count)[1]
    return np.asarray(by_kind[problem.kind], dtype=np.float64)


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
    problem: Problem, order: IntArray, price: FloatArray, tails: FloatArray, target: float
) -> Schedule:
    """In ``order``, each item where it is cheapest among the devices on which it ends by ``target`` less its tail."""
    items = problem.items
    seconds, allowed = problem.seconds_lists, problem.allowed
    paid: list[float] = price.tolist()
    latest: list[float] = (target - tails).tolist()
    start, finish, device = [0.0] * items, [0.0] * items, [0] * items
    gaps = Gaps(problem.devices)
    for item in order.tolist():
        ready = arrivals(problem, item, finish, device)
        limit = latest[item]
        least, first = (np.inf, np.inf, 0.0, -1), (np.inf, 0.0, -1)
        for there in allowed[item]:
            cost = seconds[item][there]
            begin = gaps.earliest(there, ready[there], cost)
            end = begin + cost
            if end <= limit:
                least = min(least, (paid[there] * cost, end, begin, there))
            if end < first[0]:
                first = (end, begin, there)
        end, begin, there = least[1:] if least[3] >= 0 else first
        start[item], finish[item], device[item] = begin, end, there
        gaps.occupy(there, begin, end)
    return by_start(problem, order, start, finish, device)


def within_kinds(problem: Problem, wanted: IntArray, order: IntArray) -> Schedule:
    """List scheduling in time where an item may run on any device of ``wanted[item]``'s kind (int64, shape (items,)):
    the idle one to which its arguments come first."""
    items, devices = problem.items, problem.devices
    seconds, successors, delays = problem.seconds_lists, problem.successors, problem.delays
    kinds = problem.cost.shape[1]
    kind: list[int] = problem.kind.tolist()
    # Queues of ranks: one per kind, and one per device for what is pinned to it.
    queue = [
        kinds + there if pin >= 0 else kind[there]
        for there, pin in zip(wanted.tolist(), problem.pin.tolist(), strict=True)
    ]
    ready: list[list[int]] = [[] for _ in range(kinds + devices)]
    listed: list[int] = order.tolist()
    rank = [0] * items
    for place, item in enumerate(listed):
        rank[item] = place
    waits = [len(before) for before in problem.predecessors]
    start, finish, device = [0.0] * items, [0.0] * items, [-1] * items
    idle: list[set[int]] = [{d for d in range(devices) if kind[d] == k} for k in range(kinds)]
    events: list[tuple[float, int]] = []
    for item in range(items):
        if not waits[item]:
            heappush(ready[queue[item]], rank[item])
    now = 0.0
    touched = set(range(kinds))
    while True:
        for k in touched:
            while idle[k]:
                sources = [k, *(kinds + d for d in idle[k])]
                heads = [(ready[source][0], source) for source in sources if ready[source]]
                if not heads:
                    break
                source = min(heads)[1]
                item = listed[heappop(ready[source])]
                choices = idle[k] if source == k else {source - kinds}
                begin, there = min((_arrival(problem, item, d, now, finish, device, delays), d) for d in choices)
                idle[k].discard(there)
                device[item], start[item] = there, begin
                finish[item] = begin + seconds[item][there]
                heappush(events, (finish[item], item))
        if not events:
            break
        now = events[0][0]
        touched = set()
        while events and events[0][0] == now:
            _, item = heappop(events)
            idle[kind[device[item]]].add(device[item])
            touched.add(kind[device[item]])
            for after, _ in successors[item]:
                waits[after] -= 1
                if not waits[after]:
                    heappush(ready[queue[after]], rank[after])
                    touched.add(kind[queue[after] - kinds] if queue[after] >= kinds else queue[after])
    return by_start(problem, order, start, finish, device)


def _arrival(
    problem: Problem,
    item: int,
    there: int,
    now: float,
    finish: list[float],
    device: list[int],
    delays: list[tuple[float, ...] | None],
) -> float:
    arrival = now
    for before, edge in problem.predecessors[item]:
        delay = delays[edge]
        if delay is not None:
            arrival = max(arrival, finish[before] + delay[device[before] * problem.devices + there])
    return arrival


def settled_order(problem: Problem, device: IntArray) -> IntArray:
    """The items by the longest path to the end in the seconds and delays that a placement has."""
    own = problem.seconds[np.arange(problem.items), device]
    return ordered(problem, upward_rank(problem.edges, own, settled_delays(problem, device)))


def settled_delays(problem: Problem, device: IntArray) -> FloatArray:
    """Seconds along each edge in a placement: float64, shape (edges,)."""
    source, target = device[problem.edges.source], device[problem.edges.target]
    taken: FloatArray = problem.latency[source, target] + problem.nbytes / problem.bandwidth[source, target]
    return taken
