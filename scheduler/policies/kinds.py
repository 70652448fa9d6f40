"""List scheduling in time for items whose kind of device is chosen: the second phase of Amaris, Lucarelli, Mommessin,
Trystram (Euro-Par 2017), with devices that have nothing to do helping other kinds, as in HeteroPrio (Agullo, Bramas,
Coulaud, Darve, Messner, Takahashi, Concurrency and Computation 2016)."""

from __future__ import annotations

from collections.abc import Reversible
from heapq import heapify, heappop, heappush

import numpy as np
from plait.scheduler.policies.place import by_start
from plait.scheduler.policies.problem import FloatArray, IntArray, Problem, Schedule

_LOOKED_AT = 40  # items of other kinds' queues, the less urgent ones, among which a helper looks


def within_kinds(problem: Problem, wanted: IntArray, order: IntArray, latest: FloatArray | None = None) -> Schedule:
    """Each item on any device of ``wanted[item]``'s kind (int64, shape (items,)), an idle one to which its arguments
    have come, the most urgent first.

    A device whose own kind has nothing for it helps another. It takes the most urgent item that it ends sooner than the
    other kind would; else the one it is best at, compared with the other kind, among those that it ends before the
    other kind would have worked off its queue, or by ``latest[item]`` (seconds: float64, shape (items,)).
    """
    return _Run(problem, wanted, order, latest).schedule()


class _Run:
    """The queues: ranks of ready items, one queue per kind, and one per device for what is pinned to it."""

    def __init__(self, problem: Problem, wanted: IntArray, order: IntArray, latest: FloatArray | None) -> None:
        self.problem = problem
        self.order = order
        self.listed: list[int] = order.tolist()
        self.rank = [0] * problem.items
        for place, item in enumerate(self.listed):
            self.rank[item] = place
        self.latest = [-np.inf] * problem.items if latest is None else latest.tolist()
        self.kinds = problem.cost.shape[1]
        self.kind: list[int] = problem.kind.tolist()
        self.members: list[list[int]] = [[] for _ in range(self.kinds)]
        for device, kind in enumerate(self.kind):
            self.members[kind].append(device)
        # Per kind, devices that stand for all of it: of those that share a memory, arguments reach all or none.
        self.memories = [sorted({problem.memory[device] for device in each}) for each in self.members]
        self.seconds = problem.seconds_lists
        self.queue = [
            self.kinds + there if pin >= 0 else self.kind[there]
            for there, pin in zip(wanted.tolist(), problem.pin.tolist(), strict=True)
        ]
        self.waiting = 0  # items in all queues
        self.ready: list[list[int]] = [[] for _ in range(self.kinds + problem.devices)]
        self.load = [0.0] * self.kinds  # seconds that the ready items of a kind's queue take there
        self.coming: list[int] = []  # items of which arguments are on their way since this moment
        self.expected: list[set[int]] = [set() for _ in range(self.kinds)]  # items that a kind took over on their way
        self.idle = [dict.fromkeys(each) for each in self.members]  # kept in the order in which they became idle
        self.pinned = bool((problem.pin >= 0).any())
        self.looked_at = max(1, _LOOKED_AT // max(1, self.kinds - 1))
        self.start = [0.0] * problem.items
        self.finish = [0.0] * problem.items
        self.device = [-1] * problem.items
        self.free_at = [0.0] * problem.devices
        self.since = [0.0] * problem.devices
        self.arrives = [0.0] * problem.items
        self.events: list[tuple[float, int]] = []  # ends of items, and arrivals of the arguments of ~item
        self.now = 0.0

    def schedule(self) -> Schedule:
        problem, events = self.problem, self.events
        waits = [len(before) for before in problem.predecessors]
        for item in range(problem.items):
            if not waits[item]:
                self._free(item)
        while True:
            while self._settle():
                pass
            self.coming.clear()
            if not events:
                return by_start(problem, self.order, self.start, self.finish, self.device)
            self.now = now = events[0][0]
            while events and events[0][0] == now:
                _, item = heappop(events)
                if item < 0:
                    self._arrived(~item, now)
                    continue
                device = self.device[item]
                self.idle[self.kind[device]][device] = None
                for after, _ in problem.successors[item]:
                    waits[after] -= 1
                    if not waits[after]:
                        self._free(after)

    def _settle(self) -> bool:
        """Start what can start at this moment; whether anything did, so that more might."""
        if not self.waiting and not self.coming:
            return False
        before = len(self.events)
        with_idle = [kind for kind in range(self.kinds) if self.idle[kind]]
        for kind in with_idle:
            while len(self.idle[kind]) > len(self.expected[kind]) and not self.ready[kind] and self._rush(kind):
                pass
        for kind in with_idle:
            while self.idle[kind] and self._serve(kind):
                pass
        if len(self.events) == before and self.waiting:
            for kind in with_idle:
                while self.idle[kind] and self._help(kind):
                    pass
        return len(self.events) > before

    def _free(self, item: int) -> None:
        """The item waits for no other: it queues once its arguments are on some device of its queue."""
        queue = self.queue[item]
        places = self.memories[queue] if queue < self.kinds else (queue - self.kinds,)
        arrival = min(self._arrival(item, device) for device in places)
        if arrival <= self.now:
            self._put(item)
        else:
            self._await(item, arrival)
            self.coming.append(item)

    def _await(self, item: int, arrival: float) -> None:
        self.arrives[item] = arrival
        heappush(self.events, (arrival, ~item))

    def _arrived(self, item: int, now: float) -> None:
        if self.device[item] >= 0 or self.arrives[item] != now:
            return  # another kind took it over, or is told of it already
        self.arrives[item] = -1.0
        queue = self.queue[item]
        if queue < self.kinds:
            self.expected[queue].discard(item)
        self._put(item)

    def _put(self, item: int) -> None:
        queue = self.queue[item]
        heappush(self.ready[queue], self.rank[item])
        self.waiting += 1
        if queue < self.kinds:
            self.load[queue] += self._seconds(item, queue)

    def _take(self, queue: int, rank: int) -> None:
        self.waiting -= 1
        ready = self.ready[queue]
        if ready[0] == rank:
            heappop(ready)
        else:
            ready.remove(rank)
            heapify(ready)
        if queue < self.kinds:
            self.load[queue] -= self._seconds(self.listed[rank], queue)

    def _seconds(self, item: int, kind: int) -> float:
        members = self.members[kind]
        return self.seconds[item][members[0]] if members else np.inf

    def _serve(self, kind: int) -> bool:
        """Start the most urgent item that waits for this kind, or for one of its idle devices; one whose arguments
        are on none of the idle devices waits for them."""
        while True:
            queue, heads = kind, self.ready[kind]
            rank = heads[0] if heads else -1
            for device in self.idle[kind] if self.pinned else ():
                own = self.ready[self.kinds + device]
                if own and (rank < 0 or own[0] < rank):
                    queue, rank = self.kinds + device, own[0]
            if rank < 0:
                return False
            self._take(queue, rank)
            item = self.listed[rank]
            arrival, device = self._nearest(item, self.idle[kind] if queue == kind else (queue - self.kinds,))
            if arrival <= self.now:
                self._begin(item, device, arrival)
                return True
            self._await(item, arrival)

    def _rush(self, kind: int) -> bool:
        """Start the most urgent item of other kinds that this one ends sooner than they would if they began it now."""
        ranks = [self.ready[other][0] for other in range(self.kinds) if self.ready[other]]
        ranks += [
            self.rank[item]
            for item in self.coming
            if self.device[item] < 0 and self.queue[item] < self.kinds and item not in self.expected[self.queue[item]]
        ]
        for rank in sorted(ranks):
            item = self.listed[rank]
            there = self._seconds(item, self.queue[item])
            if self._seconds(item, kind) >= there:
                continue
            arrival, device = self._nearest(item, self.idle[kind])
            if arrival + self.seconds[item][device] < self.now + there:
                queued = self.ready[self.queue[item]]
                if queued and queued[0] == rank:
                    self._take(self.queue[item], rank)
                self.queue[item] = kind
                if arrival <= self.now:
                    self._begin(item, device, arrival)
                else:
                    self.expected[kind].add(item)
                    self._await(item, arrival)
                return True
        return False

    def _help(self, kind: int) -> bool:
        """Start a less urgent item of another kind that is not delayed by it, the one that this kind is best at."""
        best, chosen, source = (-1.0, -1), -1, -1
        for other in range(self.kinds):
            ready = self.ready[other]
            if other == kind or not ready:
                continue
            behind = self.now + self.load[other] / len(self.members[other])
            for rank in ready[-self.looked_at :]:
                item = self.listed[rank]
                seconds = self._seconds(item, kind)
                end = self.now + seconds
                if end <= behind or end <= self.latest[item]:
                    gain = (self._seconds(item, other) / seconds if seconds else np.inf, rank)
                    if gain > best:
                        best, chosen, source = gain, item, other
        if chosen < 0:
            return False
        arrival, device = self._unbroken(chosen, kind)
        if device < 0:
            return False
        self._take(source, self.rank[chosen])
        self._begin(chosen, device, arrival)
        return True

    def _unbroken(self, item: int, kind: int) -> tuple[float, int]:
        """When arguments come, and an idle device that would not have begun ``item`` in an earlier gap; -1 for none."""
        arrivals: dict[int, float] = {}
        memory = self.problem.memory
        for device in reversed(self.idle[kind]):
            arrival = arrivals.get(memory[device])
            if arrival is None:
                arrival = arrivals[memory[device]] = self._arrival(item, device)
            if self.since[device] <= arrival <= self.now:
                return arrival, device
        return 0.0, -1

    def _begin(self, item: int, device: int, arrival: float) -> None:
        self.idle[self.kind[device]].pop(device, None)
        # A device that has had nothing to do for some time would have begun when the arguments came.
        begin = max(self.free_at[device], arrival)
        seconds = self.seconds[item][device]
        if begin + seconds < self.now:
            begin = self.now
        if self.free_at[device] < begin:
            self.since[device] = begin
        self.device[item], self.start[item], self.finish[item] = device, begin, begin + seconds
        self.free_at[device] = self.finish[item]
        heappush(self.events, (self.finish[item], item))

    def _nearest(self, item: int, choices: Reversible[int]) -> tuple[float, int]:
        """The device of ``choices`` to which the item's arguments come first, and when."""
        memory = self.problem.memory
        best, found = np.inf, -1
        asked: set[int] = set()
        for device in reversed(choices):
            if memory[device] in asked:
                continue
            asked.add(memory[device])
            arrival = self._arrival(item, device)
            if arrival < best:
                best, found = arrival, device
                if arrival <= self.now:
                    break
        return best, found

    def _arrival(self, item: int, device: int) -> float:
        problem, arrival = self.problem, 0.0
        delays, devices = problem.delays, problem.devices
        for before, edge in problem.predecessors[item]:
            when, delay = self.finish[before], delays[edge]
            if delay is not None:
                when += delay[self.device[before] * devices + device]
            arrival = max(arrival, when)
        return arrival
