"""A bounded ring of pinned chunks: pageable memory passes through it, so that its copies overlap with other work."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
from plait.devices.gpu import driver

CHUNK_BYTES, CHUNKS = 4 << 20, 4  # large enough for full bandwidth, few enough to stay in the last-level cache


class Chunk:
    """Pinned bytes, and the driver event behind the copy that uses them."""

    __slots__ = ("_memory", "bytes", "event", "pointer")

    def __init__(self, nbytes: int) -> None:
        self._memory = driver.cupy().cuda.alloc_pinned_memory(nbytes)
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(self._memory, np.uint8, nbytes)
        self.pointer = int(self._memory.ptr)
        self.event: Any = None

    def wait(self) -> None:
        """Block, with the GIL released, until the copy that uses it has passed; raises CuPy's error if it failed."""
        if self.event is not None:
            event, self.event = self.event, None
            driver.runtime().eventSynchronize(event.ptr)

    def is_passed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self.event is None or driver.runtime().eventQuery(self.event.ptr) != driver.NOT_READY


class Ring:
    """Chunks of one device and direction; the one that has been in use longest is the next.

    Whoever takes a chunk gives it back with the event behind its last use, so it is waited for by the next taker only.
    """

    def __init__(self, chunk_bytes: int = CHUNK_BYTES, chunks: int = CHUNKS) -> None:
        self.chunk_bytes = chunk_bytes
        self.chunks = chunks
        # Guards the queue and the count; several threads copy at once, and each takes what is free now.
        self._free = threading.Condition(threading.Lock())
        self._queue: deque[Chunk] = deque()
        self._made = 0

    def take(self) -> Chunk:
        """A chunk that nothing uses; waits for one that another thread has, or for the copy that used it last."""
        with self._free:
            while True:
                chunk = self._next()
                if chunk is not None:
                    break
                self._free.wait()
        return self._waited(chunk)

    def take_nowait(self) -> Chunk | None:
        """A chunk that nothing uses, None if there is none now."""
        with self._free:
            if self._queue and not self._queue[0].is_passed() and self._made >= self.chunks:
                return None
            chunk = self._next()
        return None if chunk is None else self._waited(chunk)

    def give(self, chunk: Chunk) -> None:
        """Give a chunk back, its event being the last use of it; one that was made beyond the ring is let go."""
        with self._free:
            if len(self._queue) < self.chunks:
                self._queue.append(chunk)
                self._free.notify()

    def extra(self) -> Chunk:
        """A chunk beyond the ring, for who must go on and whose ring is held by those who wait for it."""
        return Chunk(self.chunk_bytes)

    def close(self) -> None:
        """Let go of the chunks that are not in use; later use makes new ones."""
        with self._free:
            chunks, self._queue = list(self._queue), deque()
            self._made -= len(chunks)
        for chunk in chunks:
            chunk.wait()

    def _next(self) -> Chunk | None:
        """With the lock held."""
        if self._made < self.chunks and not (self._queue and self._queue[0].is_passed()):
            self._made += 1
            return Chunk(self.chunk_bytes)
        return self._queue.popleft() if self._queue else None

    def _waited(self, chunk: Chunk) -> Chunk:
        try:
            chunk.wait()
        except BaseException:
            self.give(chunk)
            raise
        return chunk
