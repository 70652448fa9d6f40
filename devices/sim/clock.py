"""Virtual time: what happens next, in order of nanosecond and then of who asked first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

EPOCH_NS = 1_000_000_000  # where time begins: a stamp of 0 means "never" elsewhere


class VirtualTime:
    """A heap of calls by time. One thread at a time may touch it; nothing in it waits for a real clock.

    ``live`` counts the calls that must still happen; a background call (a fault that is planned for later) happens
    only if time gets that far by others.
    """

    __slots__ = ("_heap", "_sequence", "live", "now_ns")

    def __init__(self) -> None:
        self.now_ns = EPOCH_NS
        self.live = 0
        self._heap: list[tuple[int, int, bool, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = itertools.count()

    def at(self, when_ns: int, call: Callable[..., object], *args: Any) -> None:
        """Call at that time, or now if it has passed; of one time, first asked goes first."""
        self.live += 1
        heappush(self._heap, (max(when_ns, self.now_ns), next(self._sequence), True, call, args))

    def background(self, when_ns: int, call: Callable[..., object], *args: Any) -> None:
        """As ``at``, but time does not go on for its sake."""
        heappush(self._heap, (max(when_ns, self.now_ns), next(self._sequence), False, call, args))

    @property
    def next_ns(self) -> int | None:
        """When the next call is due; None if none is that must happen."""
        return self._heap[0][0] if self.live else None

    def step(self) -> None:
        """Go on to the next call, and make it."""
        self.now_ns, _, live, call, args = heappop(self._heap)
        self.live -= live
        call(*args)

    def reach(self, when_ns: int) -> None:
        """Time has come this far by other means; calls that are due before are made first."""
        while self._heap and self._heap[0][0] <= when_ns:
            self.step()
        self.now_ns = max(self.now_ns, when_ns)


def to_ns(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(seconds * 1e9)
