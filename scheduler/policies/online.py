"""Policies that decide while work goes on: where a ready item queues, and what an idle device takes next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np
from plait.scheduler.policies.problem import IntArray, Problem, Schedule
from plait.scheduler.policies.rank import inherited_priority

_ENDS, _PUSHED = 0, 1


@dataclass
class Queues:
    """The state that a dynamic policy is shown; it changes nothing in it.

    ``waiting[d]`` is the heap of ``(rank, item)`` queued at device d, ``work[d]`` the seconds they take there,
    ``free_at[d]`` when d will have ended what it runs. ``device`` and ``finish`` of an item are set once it has started
    (device -1 before); ``now`` is in seconds.
    """

    now: float
    waiting: list[list[tuple[int, int]]]
    work: list[float]
    free_at: list[float]
    device: list[int]
    finish: list[float]
    arrival: list[float] = field(default_factory=list)


Push = Callable[[Problem, Queues, int], int]
Pull = Callable[[Problem, Queues, int], tuple[int, int]]


def arrival_at(problem: Problem, queues: Queues, item: int, device: int) -> float:
    """When the arguments of a ready item would be on a device if their transfers began now."""
    devices, delays = problem.devices, problem.delays
    arrival = queues.now
    for before, edge in problem.predecessors[item]:
        delay = delays[edge]
        source = queues.device[before]
        if delay is not None and source != device:
            arrival = max(arrival, queues.now + delay[source * devices + device])
    return arrival


def push_where_first_done(problem: Problem, queues: Queues, item: int) -> int:
    """The device that would end ``item`` first, behind its queue and after the transfers: as StarPU's dmda (Augonnet,
    Thibault, Namyst, Wacrenier, Concurrency and Computation 23(2), 2011)."""
    seconds = problem.seconds_lists[item]
    best, best_end = -1, np.inf
    for device in problem.allowed[item]:
        free = max(queues.now, queues.free_at[device]) + queues.work[device]
        end = max(free, arrival_at(problem, queues, item, device)) + seconds[device]
        if end < best_end:
            best, best_end = device, end
    return best


def push_where_made(problem: Problem, queues: Queues, item: int) -> int:
    """The device whose item made ``item`` ready; what waits for nothing is dealt out in turn."""
    allowed = problem.allowed[item]
    before = problem.predecessors[item]
    if before:
        last = max(before, key=lambda pair: queues.finish[pair[0]])[0]
        if queues.device[last] in allowed:
            return queues.device[last]
    return allowed[item % len(allowed)]


def pull_own(problem: Problem, queues: Queues, device: int) -> tuple[int, int]:
    """The most urgent of the device's own queue."""
    waiting = queues.waiting[device]
    return (device, waiting[0][1]) if waiting else (-1, -1)


def pull_or_steal(problem: Problem, queues: Queues, device: int) -> tuple[int, int]:
    """The most urgent of the device's own queue; if that is empty, the least urgent that it may run of the queue with
    most work (Blumofe, Leiserson, JACM 1999, with the victim chosen by load)."""
    if queues.waiting[device]:
        return device, queues.waiting[device][0][1]
    for victim in sorted(range(problem.devices), key=lambda other: (-queues.work[other], other)):
        # Looking further than a few hundred would cost more than it finds: what is at the heap's end is not urgent.
        for _, item in reversed(queues.waiting[victim][-256:]):
            if device in problem.allowed[item]:
                return victim, item
    return -1, -1


def online(problem: Problem, order: IntArray, push: Push, pull: Pull) -> Schedule:
    """The schedule that comes about if ``push`` says where each item queues once it is ready, and ``pull`` which queue
    and item an idle device takes: ``(-1, -1)`` for none. An item's transfers begin when it is queued, and anew when
    another device takes it.
    """
    items, devices = problem.items, problem.devices
    seconds, successors = problem.seconds_lists, problem.successors
    rank = [0] * items
    for place, item in enumerate(order.tolist()):
        rank[item] = place
    queues = Queues(
        now=0.0,
        waiting=[[] for _ in range(devices)],
        work=[0.0] * devices,
        free_at=[0.0] * devices,
        device=[-1] * items,
        finish=[0.0] * items,
        arrival=[0.0] * items,
    )
    waits = [len(before) for before in problem.predecessors]
    start = [0.0] * items
    idle = set(range(devices))
    # Of what becomes ready at one moment, the most urgent is queued first: it has the choice of devices.
    events = [(0.0, _PUSHED, rank[item], item) for item in range(items) if not waits[item]]
    heapify(events)
    while events:
        queues.now = now = events[0][0]
        while events and events[0][0] == now:
            _, what, _, item = heappop(events)
            if what == _PUSHED:
                device = push(problem, queues, item)
                queues.arrival[item] = arrival_at(problem, queues, item, device)
                heappush(queues.waiting[device], (rank[item], item))
                queues.work[device] += seconds[item][device]
                continue
            idle.add(queues.device[item])
            for after, _ in successors[item]:
                waits[after] -= 1
                if not waits[after]:
                    heappush(events, (now, _PUSHED, rank[after], after))
        for device in sorted(idle):
            source, item = pull(problem, queues, device)
            if item < 0:
                continue
            _take(queues.waiting[source], (rank[item], item))
            queues.work[source] = queues.work[source] - seconds[item][source] if queues.waiting[source] else 0.0
            if source != device:
                queues.arrival[item] = arrival_at(problem, queues, item, device)
            idle.discard(device)
            start[item] = max(now, queues.arrival[item])
            queues.device[item] = device
            queues.free_at[device] = queues.finish[item] = start[item] + seconds[item][device]
            heappush(events, (queues.finish[item], _ENDS, rank[item], item))
    starts = np.array(start)
    by = np.lexsort((np.array(rank), starts, -inherited_priority(problem))).astype(np.int64)
    return Schedule(np.array(queues.device, dtype=np.int64), by, starts, np.array(queues.finish))


def _take(heap: list[tuple[int, int]], entry: tuple[int, int]) -> None:
    if heap[0] == entry:
        heappop(heap)
    else:
        heap.remove(entry)
        heapify(heap)
