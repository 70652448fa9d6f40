"""List scheduling in time for items whose kind of device is chosen: the second phase of Amaris, Lucarelli, Mommessin,
Trystram (Euro-Par 2017), with devices that have nothing to do helping other kinds, as in HeteroPrio (Agullo, Bramas,
Coulaud, Darve, Messner, Takahashi, Concurrency and Computation 2016)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from plait.scheduler.policies.place import by_start
from plait.scheduler.policies.problem import IntArray, Problem, Schedule

_LOOKED_AT = 40  # least urgent items of a queue among which a helper looks


def within_kinds(problem: Problem, wanted: IntArray, order: IntArray) -> Schedule:
    """Each item on any device of ``wanted[item]``'s kind (int64, shape (items,)): the idle one to which its arguments
    come first. A device whose kind has nothing ready takes what it ends sooner than the other kind would.
    """
    return _Run(problem, wanted, order).schedule()


class _Run:
    """The queues: ranks of ready items, one queue per kind, and one per device for what is pinned to it."""

    def __init__(self, problem: Problem, wanted: IntArray, order: IntArray) -> None:
        self.problem = problem
        self.order = order
        self.listed: list[int] = order.tolist()
        self.rank = [0] * problem.items
        for place, item in enumerate(self.listed):
            self.rank[item] = place
        self.kinds = problem.cost.shape[1]
        self.kind: list[int] = problem.kind.tolist()
        self.members: list[list[int]] = [[] for _ in range(self.kinds)]
        for device, kind in enumerate(self.kind):
            self.members[kind].append(device)
        self.queue = [
            self.kinds + there if pin >= 0 else self.kind[there]
            for there, pin in zip(wanted.tolist(), problem.pin.tolist(), strict=True)
        ]
        self.ready: list[list[int]] = [[] for _ in range(self.kinds + problem.devices)]
        self.load = [0.0] * self.kinds  # seconds that the ready items of a kind's queue take there
        self.idle = [set(each) for each in self.members]
        self.start = [0.0] * problem.items
        self.finish = [0.0] * problem.items
        self.device = [-1] * problem.items
        self.events: list[tuple[float, int]] = []
        self.now = 0.0

    def schedule(self) -> Schedule:
        problem = self.problem
        waits = [len(before) for before in problem.predecessors]
        for item in range(problem.items):
            if not waits[item]:
                self._put(item)
        while True:
            for kind in range(self.kinds):
                while self.idle[kind] and self._serve(kind):
                    pass
            for kind in range(self.kinds):
                while self.idle[kind] and self._help(kind):
                    pass
            if not self.events:
                return by_start(problem, self.order, self.start, self.finish, self.device)
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _, item = heappop(self.events)
                self.idle[self.kind[self.device[item]]].add(self.device[item])
                for after, _ in problem.successors[item]:
                    waits[after] -= 1
                    if not waits[after]:
                        self._put(after)

    def _put(self, item: int) -> None:
        queue = self.queue[item]
        heappush(self.ready[queue], self.rank[item])
        if queue < self.kinds:
            self.load[queue] += self._seconds(item, queue)

    def _seconds(self, item: int, kind: int) -> float:
        return self.problem.seconds_lists[item][self.members[kind][0]]

    def _serve(self, kind: int) -> bool:
        """Start the most urgent item that waits for this kind, or for one of its idle devices."""
        queues = [kind, *(self.kinds + device for device in self.idle[kind])]
        heads = [(self.ready[queue][0], queue) for queue in queues if self.ready[queue]]
        if not heads:
            return False
        rank, queue = min(heads)
        heappop(self.ready[queue])
        if queue == kind:
            self.load[kind] -= self._seconds(self.listed[rank], kind)
        self._begin(self.listed[rank], self.idle[kind] if queue == kind else {queue - self.kinds})
        return True

    def _help(self, kind: int) -> bool:
        """Start what gains most when taken from another kind: its most urgent item if this kind is as fast, or one of
        its least urgent if this kind ends it before the other has worked off its queue."""
        gains: list[tuple[float, int, int]] = []
        for other in range(self.kinds):
            ready = self.ready[other]
            if other == kind or not ready:
                continue
            urgent, patient = ready[0], max(ready[-_LOOKED_AT:])
            item = self.listed[urgent]
            gains.append((self._seconds(item, other) - self._seconds(item, kind), other, urgent))
            if patient != urgent:
                behind = self.load[other] / len(self.members[other])
                gains.append((behind - self._seconds(self.listed[patient], kind), other, patient))
        gain, other, rank = max(gains, default=(-1.0, -1, -1))
        if gain < 0:
            return False
        ready = self.ready[other]
        if ready[0] == rank:
            heappop(ready)
        else:
            ready.remove(rank)
            heapify(ready)
        self.load[other] -= self._seconds(self.listed[rank], other)
        self._begin(self.listed[rank], self.idle[kind])
        return True

    def _begin(self, item: int, choices: set[int]) -> None:
        begin, device = min((self._arrival(item, device), device) for device in choices)
        self.idle[self.kind[device]].discard(device)
        self.device[item], self.start[item] = device, begin
        self.finish[item] = begin + self.problem.seconds_lists[item][device]
        heappush(self.events, (self.finish[item], item))

    def _arrival(self, item: int, device: int) -> float:
        problem, arrival = self.problem, self.now
        for before, edge in problem.predecessors[item]:
            delay = problem.delays[edge]
            if delay is not None:
                arrival = max(arrival, self.finish[before] + delay[self.device[before] * problem.devices + device])
        return arrival
