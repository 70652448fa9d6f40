"""What is followed on one device: driver events with their marks, in stream order, settled by whoever looks."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import trio
from plait.devices.gpu.driver import NOT_READY, SUCCESS, error, runtime
from plait.devices.mark import Mark
from plait.errors import DeviceError, DeviceLost


class Followed:
    """Queues of (event, mark), one for each driver stream; events of one stream are reached in the order they came."""

    def __init__(self, device: str) -> None:
        self.device = device
        # Guards the queues and the tracker's notes on which thread attends to what. Not a message to an owner: there
        # is no thread while nothing is followed. Re-entrant, since a finalizer may follow something while we hold it.
        self.lock = threading.RLock()
        self._queues: dict[int, deque[tuple[Any, Mark]]] = {}  # bounded by what is recorded and not reached
        self._closed = False

    def add(self, stream: int, event: Any, mark: Mark) -> bool:
        """Keep both until the event is reached; False if that is so already, or closed: then the mark is settled."""
        if stream not in self._queues:  # else it is behind one that is not reached yet
            status = runtime().eventQuery(event.ptr)
            if status != NOT_READY:
                self._settle([(event, mark, status)])
                return False
        spent = []  # let go of after the lock, since that calls the driver
        with self.lock:
            if not self._closed:
                queue = self._queues.setdefault(stream, deque())
                while queue and queue[0][1].settled:
                    spent.append(queue.popleft())
                queue.append((event, mark))
                return True
        mark.settle(self._closing())
        return False

    def oldest(self, stream: int) -> tuple[Any, Mark] | None:
        """What is reached next in a stream; None if nothing of it is followed."""
        with self.lock:
            queue = self._queues.get(stream)
            return queue[0] if queue else None

    @property
    def streams(self) -> tuple[int, ...]:
        """Streams of which something is followed."""
        with self.lock:
            return tuple(self._queues)

    def drain(self, *streams: int) -> bool:
        """Settle all that is reached or failed in these streams, or in all if none is named; whether there was any.

        Calls the driver, so never from a host function. A device that is lost fails everything.
        """
        query = runtime().eventQuery
        passed = []
        with self.lock:
            for stream in streams or tuple(self._queues):
                queue = self._queues.get(stream)
                while queue:
                    event, mark = queue[0]
                    status = SUCCESS if mark.settled else query(event.ptr)
                    if status == NOT_READY:
                        break
                    queue.popleft()
                    passed.append((event, mark, status))
                if not queue:
                    self._queues.pop(stream, None)
        self._settle(passed)
        return bool(passed)

    def fail(self, failure: BaseException, *streams: int) -> None:
        """Settle everything of these streams, or of all if none is named, with an error."""
        with self.lock:
            queues = [self._queues.pop(stream, None) for stream in streams or tuple(self._queues)]
        for queue in filter(None, queues):
            for _, mark in queue:
                mark.settle(failure)

    def close(self) -> None:
        """Settle everything with an error, and what is added later too."""
        with self.lock:
            self._closed = True
        self.fail(self._closing())

    def _settle(self, passed: list[tuple[Any, Mark, int]]) -> None:
        errors: dict[int, DeviceError] = {}
        for _, mark, status in passed:
            if status == SUCCESS:
                mark.settle()
                continue
            if status not in errors:
                errors[status] = error(status, self.device, "waiting for an event")
            mark.settle(errors[status])
        for failure in errors.values():
            if isinstance(failure, DeviceLost):
                self.fail(failure)

    def _closing(self) -> DeviceError:
        return DeviceError(f"waiting for an event on {self.device}: the device was closed before the event was reached")


@contextlib.contextmanager
def current_device(ordinal: int) -> Iterator[None]:
    """The device current on this thread, and the former one afterwards: threads are lent, and streams belong to one.

    Raises what CuPy raises if a lost device refuses; a former device that refuses is no concern of what is done here.
    """
    former = runtime().getDevice()
    if former == ordinal:
        yield
        return
    runtime().setDevice(ordinal)
    try:
        yield
    finally:
        with contextlib.suppress(runtime().CUDARuntimeError):
            runtime().setDevice(former)


def start_thread(work: Callable[[], None], name: str) -> None:
    """Run work on a thread of trio's cache, which needs no running loop; RuntimeError if there can be no more."""
    trio.lowlevel.start_thread_soon(work, _surface, name)


def _surface(result: Any) -> None:
    result.unwrap()  # the work never raises; if it does it is our bug, and threading.excepthook shows it
