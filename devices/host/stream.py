"""A host stream: an in-order queue of operations that a worker pool serves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.devices.elements import element, matching, writable
from plait.devices.host.event import HostEvent
from plait.devices.host.workers import BLOCKED, IDLE, READY, WorkerPool, uninterrupted
from plait.devices.mark import Mark, mark_of
from plait.devices.protocol import Event, Stream
from plait.devices.waiting import wait_mark
from plait.errors import DeviceError

if TYPE_CHECKING:
    from plait.devices.host.platform import HostDevice

SLICE_NS = 1_000_000  # how long a stream keeps its worker once an equally urgent stream waits


def _settle() -> None:
    """Stands in an operation for: settle this mark."""


def _hold() -> None:
    """Stands in an operation for: go on once this mark is settled."""


class HostStream:
    """In order, asynchronous, with a priority; the first failure is sticky."""

    def __init__(self, device: HostDevice, pool: WorkerPool, *, priority: int, kind: str, name: str) -> None:
        self.name = name
        self.device = device
        self.priority = priority
        self.kind = kind
        self.state = IDLE
        self.error: BaseException | None = None
        self._pool = pool
        self._lock = pool.lock
        # Unbounded, since enqueueing must never block the host: whoever enqueues decides how far it runs
        # ahead.
        self._operations: deque[tuple[Callable[..., object], Any, Any]] = deque()
        self._awaited: Mark | None = None  # what holds the stream while BLOCKED
        self._closed = False

    def __repr__(self) -> str:
        return f"<HostStream {self.name} priority={self.priority}{' failed' if self.error else ''}>"

    @property
    def contended(self) -> bool:
        """Whether other streams wait for a worker; long operations that can be split should then make way."""
        return self._pool.contended

    @property
    def closed(self) -> bool:
        """Whether it refuses what comes."""
        return self._closed

    @uninterrupted
    def enqueue(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Call ``function`` on a worker thread in stream order; its result is dropped, its exception fails
        the stream.
        """
        with self._lock:
            if self._closed:
                raise self._refusal()
            self._operations.append((function, args, kwargs))
            if self.state != IDLE or not self._pool.push(self):
                return
        self._pool.start_worker()

    def copy(self, target: Any, source: Any) -> None:
        """Copy ``source`` into ``target``, of the same shape and dtype; strided, overlapping and empty ones
        are fine.
        """
        self.enqueue(np.copyto, *matching(target, source, self.name))

    def fill(self, target: Any, value: Any) -> None:
        """Set every element of ``target`` to ``value``."""
        to = writable(target, "fill", self.name)
        self.enqueue(np.copyto, to, self.element(value, to.dtype))

    @uninterrupted
    def record(self, event: Event | None = None, *, timing: bool = True) -> HostEvent:
        """Mark this point of the stream; on an idle stream it is reached at once."""
        if event is None:
            event = HostEvent()
        elif not isinstance(event, HostEvent):
            raise DeviceError(f"stream {self.name} can record events of the host platform only, not {event!r}")
        event.move(self._mark(timing=timing, closed_too=False))
        return event

    @uninterrupted
    def wait(self, awaited: Event | Stream) -> None:
        """Hold what is enqueued later until the event, or all that the other stream holds now, is done.

        The event may be of any platform. Failure spreads: if what is awaited fails, this stream fails with
        the same error.
        """
        if awaited is self:
            raise DeviceError(f"stream {self.name} cannot wait for itself")
        if self._closed:
            raise self._refusal()
        mark = mark_of(awaited)
        if mark is None:
            return
        with self._lock:
            if self.state != IDLE:
                self._operations.append((_hold, mark, None))
                return
            if mark.settled or self.error is not None:
                self.error = self.error or mark.error
                return
            self.state, self._awaited = BLOCKED, mark
        mark.subscribe(self._resume)

    async def synchronize(self) -> None:
        """Wait until all that is enqueued now is done; raises the stream's error.

        Cancelling leaves the stream alone.
        """
        await wait_mark(self.snapshot())

    def close(self) -> None:
        """Refuse what comes later; what is enqueued still runs."""
        with self._lock:
            self._closed = True

    def snapshot(self) -> Mark:
        """The mark behind all that the stream holds now."""
        return self._mark(timing=False, closed_too=True)

    @uninterrupted
    def _mark(self, *, timing: bool, closed_too: bool) -> Mark:
        mark = Mark(self._lock, timing=timing)
        with self._lock:
            if self._closed and not closed_too:
                raise self._refusal()
            if self.state != IDLE:
                self._operations.append((_settle, mark, None))
                return mark
        mark.settle(self.error, time_ns=perf_counter_ns() if timing else 0)
        return mark

    def _refusal(self) -> DeviceError:
        return DeviceError(f"stream {self.name} is closed")

    def element(self, value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The value as one element for ``fill``; DeviceError if the dtype cannot hold it."""
        return element(value, dtype, self.name)

    # What follows is for the pool's workers and for marks.

    def serve(self) -> int:
        """Run operations until none is left, one has to wait, or another stream should have the worker."""
        pool, priority = self._pool, self.priority
        take = self._operations.popleft
        deadline_ns = 0
        while self._operations:
            function, args, kwargs = take()
            if function is _settle:
                args.settle(self.error, time_ns=perf_counter_ns() if args.timing else 0)
            elif self.error is not None:
                continue
            elif function is _hold:
                if not args.settled:
                    self._block(args)
                    return BLOCKED
                self.error = args.error
            else:
                try:
                    function(*args, **kwargs)
                except BaseException as error:
                    # Whatever it is, it is the stream's: this thread is borrowed and nobody would see it
                    # here.
                    traceback = error.__traceback__
                    self.error = error.with_traceback(traceback and traceback.tb_next)
            if pool.urgency >= priority:
                if pool.urgency > priority:
                    return READY
                if deadline_ns == 0:
                    deadline_ns = perf_counter_ns() + SLICE_NS
                elif perf_counter_ns() >= deadline_ns:
                    return READY
        return IDLE

    def has_work(self) -> bool:
        return bool(self._operations)

    def abandon(self, error: BaseException) -> None:
        self.error = self.error or error
        while True:
            while self._operations:
                function, args, _ = self._operations.popleft()
                if function is _settle:
                    args.settle(self.error)
            with self._lock:
                if not self._operations:
                    self.state = IDLE
                    return

    def _block(self, mark: Mark) -> None:
        with self._lock:
            self.state, self._awaited = BLOCKED, mark
        mark.subscribe(self._resume)  # this may resume on the spot: touch nothing afterwards

    @uninterrupted
    def _resume(self) -> None:
        with self._lock:
            mark, self._awaited = self._awaited, None
            if mark is not None and mark.error is not None:
                self.error = self.error or mark.error
            if not self._operations:
                self.state = IDLE
                return
            if not self._pool.push(self):
                return
        self._pool.start_worker()
