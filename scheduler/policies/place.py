"""Placement in a given order: each item goes where it would finish first, into a gap or behind what is there."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from plait.scheduler.policies.problem import IntArray, Problem, Schedule
from plait.scheduler.policies.rank import inherited_priority


def arrivals(problem: Problem, item: int, finish: list[float], device: list[int]) -> list[float]:
    """When all that ``item`` needs would be on each device; ``finish`` and ``device`` of its predecessors are set."""
    devices, delays, memories = problem.devices, problem.delays, problem.memories
    ready = [0.0] * devices
    for before, edge in problem.predecessors[item]:
        done, delay = finish[before], delays[edge]
        if delay is None:
            for there in memories:
                if done > ready[there]:  # noqa: PLR1730  (max() is three times as slow here)
                    ready[there] = done
            continue
        row = device[before] * devices
        for there in memories:
            when = done + delay[row + there]
            if when > ready[there]:  # noqa: PLR1730
                ready[there] = when
    return ready if len(memories) == devices else [ready[first] for first in problem.memory]


class Gaps:
    """When each of some devices is taken: intervals, ascending and apart; adjoining ones are kept as one.

    Of the gaps between them, ``looked_at`` are tried before what is behind all of them; None for every one.
    """

    def __init__(self, devices: int, looked_at: int | None = None) -> None:
        self._looked_at = looked_at
        self._begins: list[list[float]] = [[] for _ in range(devices)]
        self._ends: list[list[float]] = [[] for _ in range(devices)]

    def earliest(self, device: int, ready: float, cost: float) -> float:
        """The earliest start from ``ready`` on at which the device is free for ``cost`` seconds."""
        begins, ends = self._begins[device], self._ends[device]
        begin = ready
        first = bisect_right(ends, ready)
        until = len(begins) if self._looked_at is None else min(len(begins), first + self._looked_at)
        for k in range(first, until):
            if begin + cost <= begins[k]:
                return begin
            begin = max(begin, ends[k])
        return max(begin, ends[-1]) if until < len(begins) else begin

    def occupy(self, device: int, begin: float, end: float) -> None:
        """Take the device from ``begin`` to ``end``, which must be free."""
        if end <= begin:
            return
        begins, ends = self._begins[device], self._ends[device]
        index = bisect_right(begins, begin)
        joins_left = index > 0 and ends[index - 1] == begin
        joins_right = index < len(begins) and begins[index] == end
        if joins_left and joins_right:
            ends[index - 1] = ends[index]
            del begins[index], ends[index]
        elif joins_left:
            ends[index - 1] = end
        elif joins_right:
            begins[index] = begin
        else:
            begins.insert(index, begin)
            ends.insert(index, end)


def insert(problem: Problem, order: IntArray) -> Schedule:
    """HEFT's placement: the earliest finish over devices, in the first gap that is long enough (Topcuoglu, Hariri, Wu,
    IEEE TPDS 2002). The schedule's order is that of the starts, the user's priorities first.
    """
    items = problem.items
    seconds, allowed, alike = problem.seconds_lists, problem.allowed, problem.alike
    start, finish, device = [0.0] * items, [0.0] * items, [0] * items
    gaps = Gaps(problem.devices)
    for item in order.tolist():
        ready = arrivals(problem, item, finish, device)
        best_end, best_start, best = np.inf, 0.0, -1
        served = -1
        for there in allowed[item]:
            if alike[there] == served:
                continue
            cost = seconds[item][there]
            begin = gaps.earliest(there, ready[there], cost)
            if begin <= ready[there]:
                served = alike[there]  # no device like this one begins sooner
            if begin + cost < best_end:
                best_end, best_start, best = begin + cost, begin, there
        start[item], finish[item], device[item] = best_start, best_end, best
        gaps.occupy(best, best_start, best_end)
    return by_start(problem, order, start, finish, device)


def append(problem: Problem, order: IntArray) -> Schedule:
    """The earliest finish over devices, behind what is there already: list scheduling with communication."""
    items = problem.items
    seconds, allowed = problem.seconds_lists, problem.allowed
    start, finish, device = [0.0] * items, [0.0] * items, [0] * items
    free = [0.0] * problem.devices
    for item in order.tolist():
        ready = arrivals(problem, item, finish, device)
        best_end, best_start, best = np.inf, 0.0, -1
        for there in allowed[item]:
            begin = max(ready[there], free[there])
            end = begin + seconds[item][there]
            if end < best_end:
                best_end, best_start, best = end, begin, there
        start[item], finish[item], device[item] = best_start, best_end, best
        free[best] = best_end
    return Schedule(np.array(device, dtype=np.int64), order, np.array(start), np.array(finish))


def by_start(problem: Problem, order: IntArray, start: list[float], finish: list[float], device: list[int]) -> Schedule:
    """A schedule in order of priority, then of start, then of ``order``: items of no cost stay behind their needs."""
    position = np.empty(problem.items, dtype=np.int64)
    position[order] = np.arange(problem.items)
    starts = np.array(start)
    by = np.lexsort((position, starts, -inherited_priority(problem))).astype(np.int64)
    return Schedule(np.array(device, dtype=np.int64), by, starts, np.array(finish))
