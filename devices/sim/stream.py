"""A simulated stream and its events for use without a scheduler: the protocol's, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from plait.devices.elements import element, matching, writable
from plait.devices.host.event import HostEvent
from plait.devices.mark import Mark, mark_of
from plait.devices.protocol import Event, Stream
from plait.devices.sim.clock import to_ns
from plait.devices.sim.memory import SimArray
from plait.devices.sim.queue import COMPUTE, IN, NOTHING, OUT, Op, SimQueue
from plait.devices.waiting import wait_mark
from plait.errors import DeviceError

if TYPE_CHECKING:
    from plait.devices.sim.device import SimDevice


class SimEvent(HostEvent):
    """As an event of the host; its times are virtual."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<SimEvent {self.status.value}>"

    def elapsed(self, earlier: Event) -> float:
        """Virtual seconds from ``earlier``, of a simulated stream too, to this event."""
        if not isinstance(earlier, SimEvent):
            raise DeviceError(f"elapsed needs two events of one platform, not a simulated event and {earlier!r}")
        return super().elapsed(earlier)


class SimStream:
    """In order, asynchronous, with a priority; the first failure is sticky. Arrays are NumPy's, in the host's memory.

    A function takes the time that it took here, or what ``work`` says; copies and fills what the machine says.
    """

    def __init__(self, device: SimDevice, queue: SimQueue, *, kind: str, priority: int) -> None:
        self.name = queue.name
        self.device = device
        self.priority = priority
        self.kind = kind
        self.error: BaseException | None = None
        self._queue = queue
        self._ask = device.simulation.free.ask
        self._gates: list[Op] = []  # what it waits for; touched on the simulation's thread alone
        self._closed = False

    def __repr__(self) -> str:
        return f"<SimStream {self.name} priority={self.priority}{' failed' if self.error else ''}>"

    def enqueue(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Call ``function`` in stream order; in virtual time it takes as long as it really did."""
        self._call(None, lambda: function(*args, **kwargs))

    def work(self, seconds: float, function: Callable[..., object] | None = None, /, *args: Any) -> None:
        """Take so long in virtual time, and call ``function`` at its beginning if one is given."""
        if not seconds >= 0:
            raise DeviceError(f"work on stream {self.name} cannot take {seconds!r} seconds")
        self._call(to_ns(seconds), (lambda: None) if function is None else lambda: function(*args))

    def copy(self, target: Any, source: Any) -> None:
        """Copy between arrays of one shape and dtype; in or out if one of them is not the device's."""
        to, read = matching(target, source, self.name)
        inward, outward = isinstance(target, SimArray), isinstance(source, SimArray)
        if inward == outward:
            self._call(self._sweep_ns(2 * to.nbytes), lambda: np.copyto(to, read))
            return
        ends = ("host", self.device.name) if inward else (self.device.name, "host")
        latency_ns, route = self.device.simulation.route(*ends)
        op = Op(IN if inward else OUT, latency_ns, route=route, nbytes=to.nbytes)
        self._push(op, lambda: np.copyto(to, read))

    def fill(self, target: Any, value: Any) -> None:
        """Set every element of ``target`` to ``value``."""
        to = writable(target, "fill", self.name)
        one = element(value, to.dtype, self.name)
        self._call(self._sweep_ns(to.nbytes), lambda: np.copyto(to, one))

    def record(self, event: Event | None = None, *, timing: bool = True) -> SimEvent:
        """Mark this point of the stream."""
        if event is None:
            event = SimEvent()
        elif not isinstance(event, SimEvent):
            raise DeviceError(f"stream {self.name} can record events of the simulated platform only, not {event!r}")
        self._refuse_if_closed()
        event.move(self._mark(timing=timing))
        return event

    def wait(self, awaited: Event | Stream) -> None:
        """Hold what is enqueued later until the event, or all that the other stream holds now, is done.

        The event may be of any platform. Failure spreads.
        """
        if cast(object, awaited) is self:
            raise DeviceError(f"stream {self.name} cannot wait for itself")
        self._refuse_if_closed()
        mark = mark_of(awaited)
        if mark is None:
            return
        gate = Op(NOTHING)

        def hold() -> None:
            if self.error is not None:
                return
            self._gates.append(gate)
            op = Op(NOTHING, waits=[gate])
            op.then(lambda: self._gates.remove(gate))
            op.then(lambda: self._fail(mark.error))
            self._queue.push(op)
            mark.subscribe(lambda: self._ask(lambda: self._queue.open(gate)))

        self._ask(hold)

    async def synchronize(self) -> None:
        """Wait until all that is enqueued now is done; raises the stream's error. Cancelling leaves it alone."""
        await wait_mark(self.snapshot())

    def close(self) -> None:
        """Refuse what comes later; what is enqueued still runs."""
        self._closed = True

    def snapshot(self) -> Mark:
        """The mark behind all that the stream holds now."""
        return self._mark(timing=False)

    def _mark(self, *, timing: bool) -> Mark:
        mark = Mark(timing=timing)
        op = Op(NOTHING)
        op.then(lambda: mark.settle(self.error or op.error, time_ns=op.end_ns if timing else 0))
        self._ask(lambda: self._queue.push(op))
        return mark

    def _call(self, took_ns: int | None, function: Callable[[], object]) -> None:
        self._push(Op(COMPUTE, took_ns or 0), function, measured=took_ns is None)

    def _push(self, op: Op, function: Callable[[], object], *, measured: bool = False) -> None:
        self._refuse_if_closed()
        op.early = True

        def task() -> None:
            if self.error is not None:
                op.took_ns, op.nbytes = 0, 0
                return
            began = perf_counter_ns()
            try:
                function()
            except BaseException as error:  # whatever it is, it is the stream's
                self._fail(error)
            if measured:
                op.took_ns = perf_counter_ns() - began

        op.task = task
        op.then(lambda: self._fail(op.error))
        self._ask(lambda: self._queue.push(op))

    def _fail(self, error: BaseException | None) -> None:
        """From now on everything is skipped, and nothing is waited for."""
        if error is None or self.error is not None:
            return
        self.error = error
        for gate in list(self._gates):
            self._queue.open(gate)

    def _sweep_ns(self, nbytes: int) -> int:
        rate = self.device.model.bytes_per_s
        return to_ns(nbytes / rate) if rate else 0

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise DeviceError(f"stream {self.name} is closed")
