"""A worker pool: at most N threads serve any number of in-order streams, the most urgent first.

No thread is ours: a worker is a job on trio's thread cache that returns when no stream is runnable, so an
idle pool holds
no thread and an interpreter that ends has nothing to join. The cache needs no running trio loop.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import trio
from plait.errors import DeviceError

# Ctrl-C must not cut a hand-over in two (queued, but no worker told). With trio this costs nothing per call.
uninterrupted = trio.lowlevel.enable_ki_protection

IDLE, READY, BLOCKED = range(3)  # READY: in the heap or with a worker. Only an IDLE stream needs a hand-over.

NOBODY = -(1 << 62)


_thread = threading.local()  # .pool: the pool that this thread is a worker of


@contextlib.contextmanager
def worker_waits() -> Iterator[None]:
    """Around a wait, on whatever thread, for work that may need this pool: a worker that waits gets a stand-in."""
    pool: WorkerPool | None = getattr(_thread, "pool", None)
    with contextlib.nullcontext() if pool is None else pool.one_more():
        yield


class Served(Protocol):
    """What a pool asks of a stream; ``state`` is the pool's, guarded by its lock."""

    priority: int
    state: int

    def serve(self) -> int:
        """Run operations; return IDLE when there were no more, READY to be served again, BLOCKED to be left
        alone.
        """
        ...

    def has_work(self) -> bool: ...

    def abandon(self, error: BaseException) -> None:
        """No thread can be had: fail, and settle whatever waits."""
        ...


class WorkerPool:
    """Serves streams by priority (a larger number is more urgent), round robin among equals."""

    def __init__(self, name: str, size: int) -> None:
        if size < 1:
            raise DeviceError(f"worker pool {name!r} needs at least one thread, not {size}")
        self.name = name
        self.size = size
        # Guards the heap, the count of workers, every stream's state and its events' callbacks. Not a message
        # to an owner: a
        # hand-over must cost less than waking one. Re-entrant, since a finalizer may close a stream while we
        # hold it.
        self.lock = threading.RLock()
        self.urgency = NOBODY  # priority of the most urgent stream that waits for a worker; read without the lock
        self._ready: list[tuple[int, int, Served]] = []  # at most one entry per stream
        self._turn = itertools.count()
        self._workers = 0

    @property
    def workers(self) -> int:
        """Threads at work now."""
        return self._workers

    @property
    def contended(self) -> bool:
        """Whether a stream waits for a worker. Read without the lock: a hint for work that can make way."""
        return self.urgency != NOBODY

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """One worker more than the size, while one of them waits for what others must do."""
        with self.lock:
            self.size += 1
            start = bool(self._ready) and self._workers < self.size
            self._workers += start
        if start:
            self.start_worker()
        try:
            yield
        finally:
            with self.lock:
                self.size -= 1

    def push(self, stream: Served) -> bool:
        """With the lock held: make an idle or blocked stream runnable.

        True: the caller must ``start_worker``, lock released.
        """
        stream.state = READY
        priority = stream.priority
        heapq.heappush(self._ready, (-priority, next(self._turn), stream))
        self.urgency = max(self.urgency, priority)
        if self._workers < self.size:
            self._workers += 1
            return True
        return False

    def start_worker(self) -> None:
        try:
            trio.lowlevel.start_thread_soon(self._work, _surface, self.name)
        except RuntimeError as error:  # the system has no more threads, or the interpreter is ending
            self._do_without(error)

    def _work(self) -> None:
        _thread.pool = self
        try:
            self._serve_all()
        finally:
            _thread.pool = None

    def _serve_all(self) -> None:
        stream: Served | None = None
        state = IDLE
        while True:
            with self.lock:
                if stream is not None and state != BLOCKED:
                    # Something may have come after the stream saw its queue empty, so look again with the
                    # lock held.
                    if state == READY or stream.has_work():
                        heapq.heappush(self._ready, (-stream.priority, next(self._turn), stream))
                    else:
                        stream.state = IDLE
                if self._workers > self.size and self._ready:
                    self._workers -= 1  # the worker that waited is back
                    return
                if not self._ready:
                    self.urgency = NOBODY
                    self._workers -= 1
                    return
                stream = heapq.heappop(self._ready)[2]
                self.urgency = -self._ready[0][0] if self._ready else NOBODY
            state = stream.serve()

    def _do_without(self, cause: RuntimeError) -> None:
        with self.lock:
            self._workers -= 1
            if self._workers:
                return  # the others will get to it
            left = [entry[2] for entry in sorted(self._ready, key=lambda entry: entry[:2])]
            self._ready.clear()
            self.urgency = NOBODY
        error = DeviceError(f"no thread can be started for the worker pool {self.name!r}: {cause}")
        error.__cause__ = cause
        for stream in left:
            stream.abandon(error)


def _surface(result: Any) -> None:
    result.unwrap()  # a worker never raises; if one does it is our bug, and threading.excepthook shows it
