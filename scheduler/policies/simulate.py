"""A small event simulator: how long a placement and an order take on a machine whose devices run one item at a time.

The model is that of HEFT (Topcuoglu, Hariri, Wu 2002): what flows along an edge between two devices arrives one delay
after its producer ends, and links carry any number of transfers at once. A device that is free starts the most urgent
item whose arguments have arrived (list scheduling), as the lanes of a scheduler do.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from plait.scheduler.policies.problem import IntArray, Problem, Schedule

_ENDS, _ARRIVES = 0, 1


def simulate(problem: Problem, device: IntArray, order: IntArray) -> Schedule:
    """When each item starts and ends if item i runs on ``device[i]`` and more urgent items, by ``order``, go first.

    Both are int64 of shape (items,); ``order`` names every item once, most urgent first. Deterministic.
    """
    items, devices = problem.items, problem.devices
    seconds, successors, delays = problem.seconds_lists, problem.successors, problem.delays
    where: list[int] = device.tolist()
    listed: list[int] = order.tolist()
    rank = [0] * items
    for place, item in enumerate(listed):
        rank[item] = place
    waits = [len(before) for before in problem.predecessors]
    ready = [0.0] * items
    start, finish = [0.0] * items, [0.0] * items
    available: list[list[int]] = [[] for _ in range(devices)]  # ranks of items whose arguments are there
    idle = [True] * devices
    events: list[tuple[float, int, int]] = [(0.0, _ARRIVES, item) for item in range(items) if not waits[item]]
    while events:
        now = events[0][0]
        touched: set[int] = set()
        while events and events[0][0] == now:
            _, what, item = heappop(events)
            here = where[item]
            if what == _ARRIVES:
                heappush(available[here], rank[item])
                touched.add(here)
                continue
            idle[here] = True
            touched.add(here)
            for after, edge in successors[item]:
                delay = delays[edge]
                there = where[after]
                when = now if delay is None or there == here else now + delay[here * devices + there]
                if when > ready[after]:  # noqa: PLR1730  (max() is three times as slow here)
                    ready[after] = when
                waits[after] -= 1
                if not waits[after]:
                    heappush(events, (ready[after], _ARRIVES, after))
        for here in sorted(touched):
            if idle[here] and available[here]:
                item = listed[heappop(available[here])]
                idle[here] = False
                start[item], finish[item] = now, now + seconds[item][here]
                heappush(events, (finish[item], _ENDS, item))
    return Schedule(device, order, np.array(start), np.array(finish))
