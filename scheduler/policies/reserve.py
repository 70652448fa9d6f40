"""List scheduling in time in which an item may hold out for a busy device, if it would end there first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from plait.scheduler.policies.place import arrivals, by_start
from plait.scheduler.policies.problem import IntArray, Problem, Schedule


def reserve(problem: Problem, order: IntArray) -> Schedule:
    """Whenever a device is free, the most urgent ready items choose in turn where they would end first, counting what
    runs there; those that chose a free device begin, the others choose again next time. As many are asked as there are
    devices. Unlike ``insert``, nothing is laid out that a later decision would upset.
    """
    items, devices = problem.items, problem.devices
    seconds, allowed, successors = problem.seconds_lists, problem.allowed, problem.successors
    listed: list[int] = order.tolist()
    rank = [0] * items
    for place, item in enumerate(listed):
        rank[item] = place
    waits = [len(before) for before in problem.predecessors]
    ready = [rank[item] for item in range(items) if not waits[item]]
    heapify(ready)
    start, finish, device = [0.0] * items, [0.0] * items, [-1] * items
    arrival: dict[int, list[float]] = {}
    free_at = [0.0] * devices
    events: list[tuple[float, int]] = []
    now = 0.0
    while True:
        free = [max(each, now) for each in free_at]
        idle = sum(each <= now for each in free_at)
        held: list[int] = []
        while ready and idle and len(held) < devices:
            item = listed[heappop(ready)]
            if item not in arrival:
                arrival[item] = arrivals(problem, item, finish, device)
            there_at = arrival[item]
            first, begin, chosen = np.inf, 0.0, -1
            for there in allowed[item]:
                earliest = free[there] if free[there] > there_at[there] else there_at[there]
                if earliest + seconds[item][there] < first:
                    first, begin, chosen = earliest + seconds[item][there], earliest, there
            if free[chosen] <= now and free_at[chosen] <= now:
                del arrival[item]
                idle -= 1
                device[item], start[item], finish[item] = chosen, begin, first
                free_at[chosen] = first
                heappush(events, (first, item))
            else:
                held.append(rank[item])
            free[chosen] = first
        for each in held:
            heappush(ready, each)
        if not events:
            return by_start(problem, order, start, finish, device)
        now = events[0][0]
        while events and events[0][0] == now:
            for after, _ in successors[heappop(events)[1]]:
                waits[after] -= 1
                if not waits[after]:
                    heappush(ready, rank[after])
