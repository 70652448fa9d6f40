"""A simulated stream: operations in order, each behind its waits, on one of its device's engines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.devices.sim.device import SimDevice
    from plait.devices.sim.links import Port

COMPUTE, IN, OUT, PEER, NOTHING = range(5)  # what an operation needs of its device


class Op:
    """One operation of a stream. It is its own event: ``done``, with ``error`` if it failed, between two times.

    ``took_ns`` is the time on the engine; a transfer then sends ``nbytes`` through the ports of ``route`` (a
    function where they are known only then). ``task`` is
    called when it ends (or, with ``early``, when it begins), and what it raises is the error.
    """

    __slots__ = (
        "callbacks", "done", "early", "end_ns", "engine", "error", "left", "nbytes", "queue", "route", "start_ns",
        "task", "took_ns", "waits",
    )  # fmt: skip

    def __init__(
        self,
        engine: int,
        took_ns: int = 0,
        *,
        waits: Sequence[Op] = (),
        task: Callable[[], object] | None = None,
        route: Sequence[Port] = (),
        nbytes: int | Callable[[], int] = 0,
    ) -> None:
        self.engine = engine
        self.took_ns = took_ns
        self.waits: Sequence[Op] = waits
        self.task = task
        self.route = route
        self.nbytes = nbytes
        self.early = False
        self.done = False
        self.error: BaseException | None = None
        self.start_ns = self.end_ns = 0
        self.callbacks: list[Callable[[], object]] | None = None
        self.left = 0
        self.queue: SimQueue | None = None

    def began_at(self) -> int:
        """When it began, in virtual nanoseconds."""
        return self.start_ns

    def ended_at(self) -> int:
        """When it ended, in virtual nanoseconds."""
        return self.end_ns

    def then(self, callback: Callable[[], object]) -> None:
        """Call once done, at once if it is."""
        if self.done:
            callback()
        elif self.callbacks is None:
            self.callbacks = [callback]
        else:
            self.callbacks.append(callback)


class SimQueue:
    """An in-order queue of a simulated device; what schedulers and simulated streams put their operations in."""

    __slots__ = ("__weakref__", "_ops", "_running", "device", "kind", "name", "pointer", "priority")

    def __init__(self, device: SimDevice, pointer: int, *, priority: int, kind: str, name: str) -> None:
        self.device = device
        self.pointer = pointer  # tells it from every other
        self.priority = priority
        self.kind = kind
        self.name = name
        self._ops: deque[Op] = deque()
        self._running = False

    def __repr__(self) -> str:
        return f"<SimQueue {self.name}>"

    def push(self, op: Op) -> Op:
        """Put an operation behind what is there."""
        op.queue = self
        self._ops.append(op)
        if not self._running:
            self._go_on()
        return op

    def record(self, *, timing: bool = False) -> Op:
        """An event that marks this point."""
        return self.push(Op(NOTHING))

    def open(self, gate: Op) -> None:
        """Settle an operation that is in no queue: what others wait for."""
        if not gate.done:
            self._settle(gate, None)

    def fail(self, error: BaseException) -> None:
        """The device is lost: nothing here will run, and all of it has failed."""
        ops, self._ops = self._ops, deque()
        self._running = False
        for op in ops:
            if not op.done:
                self._settle(op, error)

    def _go_on(self) -> None:
        while self._ops:
            op = self._ops[0]
            self._running = True
            op.left = 1
            for wait in op.waits:
                if not wait.done:
                    op.left += 1
                    wait.then(lambda op=op: self._passed(op))  # type: ignore[misc]
            op.waits = ()
            op.left -= 1
            if op.left:
                return
            if op.engine != NOTHING:
                self.device.request(op)
                return
            self._ops.popleft()
            self._running = False
            self._pass(op)

    def _passed(self, op: Op) -> None:
        op.left -= 1
        if op.left or op.done:
            return
        if op.engine != NOTHING:
            self.device.request(op)
        else:
            self._ops.popleft()
            self._running = False
            self._pass(op)
            if not self._running:
                self._go_on()

    def _pass(self, op: Op) -> None:
        """An operation that takes no time."""
        error = self.device.error
        if error is None:
            self.device.call(op)
        self._settle(op, error)

    def ended(self, op: Op, error: BaseException | None) -> None:
        """For the device: the operation at the head has ended."""
        self._ops.popleft()
        self._running = False
        self._settle(op, error)
        if not self._running:
            self._go_on()

    def _settle(self, op: Op, error: BaseException | None) -> None:
        op.error = op.error or error
        op.done = True
        op.end_ns = self.device.time.now_ns
        op.start_ns = op.start_ns or op.end_ns
        op.task, op.nbytes, op.route = None, 0, ()  # what they hold may be freed
        callbacks, op.callbacks = op.callbacks, None
        for callback in callbacks or ():
            callback()
