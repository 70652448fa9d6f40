"""A simulated device: engines that operations take turns on, memory that is only counted, and its faults."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from plait.devices.mark import Mark
from plait.devices.sim.links import Flow
from plait.devices.sim.memory import SimAllocator, Tally
from plait.devices.sim.model import DeviceModel
from plait.devices.sim.queue import COMPUTE, IN, OUT, PEER, Op, SimQueue
from plait.devices.sim.stream import SimEvent, SimStream
from plait.errors import DeviceError, DeviceLost

if TYPE_CHECKING:
    from plait.devices.sim.lane import SimLane
    from plait.devices.sim.simulation import Simulation

KINDS = ("compute", "copy")

_E = TypeVar("_E", bound=BaseException)


class SimDevice:
    """One device of a simulation. Its ``platform`` is its model's kind, so a graph for ``cuda`` runs on it unchanged.

    To a scheduler it is what a GPU is: it gives launch queues, events and a tracker. In between there is no driver, and
    no thread: everything happens in the simulation's virtual time.
    """

    def __init__(self, simulation: Simulation, model: DeviceModel) -> None:
        self.simulation = simulation
        self.model = model
        self.time = simulation.time
        self.platform = model.kind
        self.ordinal = model.ordinal
        self.name = model.name
        self.error: BaseException | None = None
        self.memory = Tally(self.name, model.memory_bytes)
        self.allocator = SimAllocator(limit_bytes=model.memory_bytes)
        self.tracker = Tracker(self)
        self.busy_ns = 0
        self._numbers = itertools.count()
        self._sequence = itertools.count()
        self._free = {COMPUTE: model.streams, IN: model.copies_in, OUT: model.copies_out, PEER: model.copies_peer}
        self._waiting: dict[int, list[tuple[int, int, Op]]] = {engine: [] for engine in self._free}
        self._running: list[Op] = []
        self._queues: WeakSet[SimQueue] = WeakSet()

    def __repr__(self) -> str:
        return f"<SimDevice {self.name}{' lost' if self.error else ''}>"

    @property
    def description(self) -> DeviceModel:
        """Its model: what the machine's file says of it."""
        return self.model

    def stream(self, *, priority: int = 0, kind: str = "compute", name: str | None = None) -> SimStream:
        """A stream for use without a scheduler. A larger priority is more urgent."""
        if kind not in KINDS:
            raise DeviceError(f"a simulated stream is of kind {' or '.join(KINDS)}, not {kind!r}")
        if not isinstance(priority, int):
            raise DeviceError(f"a stream's priority is an integer, not {priority!r}")
        number = next(self._numbers)
        label = f"{self.name}/{kind}{number}" if name is None else name
        queue = SimQueue(self, number, priority=priority, kind=kind, name=label)
        self._queues.add(queue)
        return SimStream(self, queue, kind=kind, priority=priority)

    def event(self) -> SimEvent:
        """An event that is not recorded yet."""
        return SimEvent()

    # ---- for schedulers ---------------------------------------------------------------------------------------

    def level(self, priority: int) -> int:
        """Every priority has a level of its own."""
        return priority

    def borrow(self, *, priority: int, kind: str, name: str) -> SimQueue:
        """A launch queue of that priority and kind."""
        self.check()
        queue = SimQueue(self, next(self._numbers), priority=priority, kind=kind, name=name)
        self._queues.add(queue)
        return queue

    def give_back(self, queue: SimQueue) -> None:
        """Nothing is enqueued through it any more."""
        self._queues.discard(queue)

    def give_events(self, events: Iterable[Any]) -> None:
        """Events of a simulation cost nothing and are not kept."""

    def lane(self, name: str, priority: int = 0) -> SimLane:
        """What stands for a thread that launches on this device."""
        return self.simulation.lane(name)

    def joins(self) -> list[Any]:
        """Nothing of the caller's own runs here."""
        return []

    def noted(self, error: _E) -> _E:
        """``error``, remembered if it says that the device is lost."""
        if isinstance(error, DeviceLost) and self.error is None:
            self.lose(error)
        return error

    def check(self) -> None:
        """Raise the error that the device was lost by."""
        if self.error is not None:
            raise DeviceLost(f"{self.name} is lost since: {self.error}") from self.error

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes; (0, 0) if it has no limit."""
        limit = self.memory.limit or 0
        return max(0, limit - self.memory.in_use), limit

    def lose(self, error: BaseException) -> None:
        """From now on nothing runs here, and what was in flight has failed."""
        if self.error is not None:
            return
        self.error = error
        self._waiting = {engine: [] for engine in self._free}
        for queue in sorted(self._queues, key=lambda queue: queue.pointer):
            queue.fail(error)

    def link_to(self, name: str) -> tuple[float, float] | None:
        """Bytes per second and latency in seconds of the link to that place, for planning; None if there is none."""
        link = self.simulation.machine.link(self.name, name)
        return None if link is None else (link.bytes_per_s, link.latency_s)

    # ---- operations -------------------------------------------------------------------------------------------

    def request(self, op: Op) -> None:
        """An operation at the head of its queue, whose waits are over, asks for its engine."""
        if self.error is not None:
            assert op.queue is not None
            op.queue.ended(op, self.error)
        elif self._free[op.engine]:
            self._free[op.engine] -= 1
            self._start(op)
        else:
            assert op.queue is not None
            heappush(self._waiting[op.engine], (-op.queue.priority, next(self._sequence), op))

    def _start(self, op: Op) -> None:
        now = op.start_ns = self.time.now_ns
        if op.early:
            self.call(op)
        self.time.at(now + self.simulation.slowed(self, op.took_ns), self._took, op)

    def _took(self, op: Op) -> None:
        nbytes = op.nbytes if isinstance(op.nbytes, int) else op.nbytes()
        if nbytes > 0 and op.route and not op.done:
            Flow(op.route, nbytes, lambda: self._end(op)).start(self.time)
        else:
            self._end(op)

    def _end(self, op: Op) -> None:
        if op.done:
            return  # lost meanwhile
        queue = op.queue
        assert queue is not None
        self._free[op.engine] += 1
        if op.engine == COMPUTE:
            self.busy_ns += self.time.now_ns - op.start_ns
        if op.error is None and op.task is not None and not op.early:
            self.call(op)
        waiting = self._waiting[op.engine]
        if waiting:
            self._free[op.engine] -= 1
            self.time.at(self.time.now_ns, self._next, op.engine)
        queue.ended(op, None)

    def _next(self, engine: int) -> None:
        """An engine is free: the most urgent of all that have asked by now, the next of the same stream among them."""
        waiting = self._waiting[engine]
        if waiting:
            self._start(heappop(waiting)[2])
        else:
            self._free[engine] += 1

    def call(self, op: Op) -> None:
        """Do what the operation is there for, once; what it raises is its error."""
        task, op.task = op.task, None
        try:
            if task is not None:
                task()
        except BaseException as error:  # whatever it is, it is the operation's
            op.error = error


class Tracker:
    """Settles marks once operations are done, as the host hears of them: late, if a fault says so."""

    def __init__(self, device: SimDevice) -> None:
        self._device = device

    def follow(self, stream: int, event: Op, mark: Mark) -> None:
        """Settle ``mark`` once ``event`` is done; with the error if the device was lost."""
        device = self._device

        def heard() -> None:
            late = device.simulation.lateness_ns(device)
            if late:
                device.time.at(device.time.now_ns + late, mark.settle, device.error)
            else:
                mark.settle(device.error)

        event.then(heard)
