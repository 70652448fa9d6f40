"""What the tests of memory share: an allocator without memory, and streams whose progress the test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plait.errors import OutOfMemory


class Sheet:
    """A block of which only the address is real."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes

    def array(self, shape: Any, dtype: Any) -> Any:
        raise AssertionError("there is no memory behind this block")


class Paper:
    """An allocator of addresses; ``most`` is what one request may have, ``total`` what all may.

    Blocks lie beside each other, so that a pool that joined chunks of two regions would be caught.
    """

    def __init__(self, most: int = 1 << 60, total: int = 1 << 60) -> None:
        self.most, self.total = most, total
        self.held: dict[int, int] = {}
        self.asked: list[int] = []
        self.freed: list[int] = []
        self._next = 1 << 32

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Any = None) -> Sheet:
        self.asked.append(nbytes)
        if nbytes > self.most or sum(self.held.values()) + nbytes > self.total:
            raise OutOfMemory(f"paper has run out at {nbytes} bytes")
        block = Sheet(self._next, nbytes)
        self._next += nbytes + -nbytes % max(alignment, 1)
        self.held[block.address] = nbytes
        return block

    def free(self, block: Any, *, stream: Any = None) -> None:
        self.freed.append(self.held.pop(block.address))

    def statistics(self) -> Mapping[str, int]:
        return {}


class Clock:
    """Streams by name, whose enqueued work passes when the test says; ``record`` is for the pool."""

    def __init__(self) -> None:
        self.enqueued: dict[Any, int] = {}
        self.reached: dict[Any, int] = {}
        self.recorded: list[Any] = []

    def work(self, stream: Any) -> int:
        """Enqueue something; its number."""
        self.enqueued[stream] = self.enqueued.get(stream, 0) + 1
        return self.enqueued[stream]

    def record(self, stream: Any) -> Callable[[], bool]:
        self.recorded.append(stream)
        return self.mark(stream)

    def mark(self, stream: Any) -> Callable[[], bool]:
        """An event behind what is enqueued now."""
        number = self.enqueued.get(stream, 0)
        return lambda: self.has_passed(stream, number)

    def has_passed(self, stream: Any, number: int) -> bool:
        return self.reached.get(stream, 0) >= number

    def pass_all(self, stream: Any) -> None:
        self.reached[stream] = self.enqueued.get(stream, 0)
