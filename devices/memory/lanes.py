"""Lanes: what is free for one stream, or for all, and how it comes to be free for all."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from plait.devices.memory.bins import Bins
from plait.devices.memory.chunks import NONE, Chunks
from plait.devices.memory.regions import Regions

Passed = Callable[[], bool]

_MOST_MARKS = 8


class Lane:
    """What is free for one stream (``stream`` None: for all).

    ``quick`` has the chunks freed last by exact size, not joined with anything yet; ``bins`` the others. A chunk freed
    in epoch e may be used by all once a mark ``(passed, epoch >= e)`` has passed; ``newest`` is the latest epoch that
    any chunk in the bins may have.
    """

    __slots__ = ("bins", "epoch", "marks", "newest", "number", "quick", "stream")

    def __init__(self, stream: Hashable, number: int) -> None:
        self.stream = stream
        self.number = number
        self.quick: dict[int, list[int]] = {}
        self.bins = Bins()
        self.epoch = 0
        self.newest = -1
        self.marks: deque[tuple[Passed, int]] = deque()

    def mark(self, passed: Passed) -> None:
        """All that has been freed here so far is free for all once ``passed()``.

        Only the last few are kept: a later point of the stream stands for an earlier one.
        """
        if len(self.marks) == _MOST_MARKS:
            self.marks.pop()
        self.marks.append((passed, self.epoch))
        self.epoch += 1

    def passed(self) -> int:
        """The latest epoch that has passed since the last call; -1 if none."""
        epoch = -1
        while self.marks and self.marks[0][0]():
            epoch = self.marks.popleft()[1]
        return epoch


class Lanes:
    """The lane of each stream that something is free for, and ``anyone``, the one for all."""

    def __init__(self, chunks: Chunks, record: Callable[[Any], Passed]) -> None:
        self._chunks = chunks
        self._record = record
        self._numbers = itertools.count(1)
        self.anyone = Lane(None, 0)
        self.of: dict[Hashable, Lane] = {None: self.anyone}

    def new(self, stream: Hashable) -> Lane:
        """The lane of a stream that has none."""
        lane = self.of[stream] = Lane(stream, next(self._numbers))
        return lane

    def merge(self, lane: Lane, handle: int) -> int:
        """Put a free chunk into a lane's bins, joined with its neighbours there; gives the chunk that results."""
        chunks, bins = self._chunks, lane.bins
        number, owner = lane.number, chunks.owner
        before = chunks.before[handle]
        if before != NONE and owner[before] == number:
            bins.remove(chunks.key(before))
            chunks.join(before)
            handle = before
        after = chunks.after[handle]
        if after != NONE and owner[after] == number:
            bins.remove(chunks.key(after))
            chunks.join(handle)
        owner[handle] = number
        bins.add(chunks.key(handle))
        return handle

    def put(self, lane: Lane, handle: int) -> None:
        """Put a chunk into a lane's bins, knowing that no neighbour lies there."""
        self._chunks.owner[handle] = lane.number
        lane.bins.add(self._chunks.key(handle))

    def flush(self, lane: Lane) -> None:
        """Join what lies in the exact lists with its neighbours."""
        if lane.quick:
            epoch, merge = self._chunks.epoch, self.merge
            quick, lane.quick = lane.quick, {}
            for handles in quick.values():
                for handle in handles:
                    lane.newest = max(lane.newest, epoch[handle])
                    merge(lane, handle)

    def fit(self, lane: Lane, size: int) -> int:
        """Take out the best fit among what a stream may have, its own first; NONE if there is none."""
        self.flush(lane)
        handle = lane.bins.fit(size)
        if handle < 0 and lane is not self.anyone:
            self.flush(self.anyone)
            handle = self.anyone.bins.fit(size)
        return handle

    def settle(self) -> bool:
        """Make free for all what streams have passed, and mark this point of the others; whether there was such."""
        chunks, anyone, found = self._chunks, self.anyone, False
        self.flush(anyone)
        for key, lane in list(self.of.items()):
            if lane is anyone:
                continue
            self.flush(lane)
            if lane.newest == lane.epoch:
                lane.mark(self._record(lane.stream))
            epoch = lane.passed()
            if epoch >= 0:
                for handle in lane.bins.handles():
                    if chunks.epoch[handle] <= epoch:
                        found = True
                        lane.bins.remove(chunks.key(handle))
                        chunks.epoch[handle] = 0
                        self.merge(anyone, handle)
            if not lane.bins:
                del self.of[key]
        return found

    def annex(self, lane: Lane, size: int) -> bool:
        """Join ``size`` bytes of neighbours that are free for a stream or for all, in its lane; whether there are.

        The last resort: other streams may have these bytes only once this one has passed.
        """
        chunks, anyone = self._chunks, self.anyone
        if lane is anyone:
            return False
        before, after, owner, usable = chunks.before, chunks.after, chunks.owner, (lane.number, anyone.number)
        for handle in lane.bins.handles():
            first, last, found = handle, handle, chunks.size[handle]
            while before[first] != NONE and owner[before[first]] in usable:
                first = before[first]
                found += chunks.size[first]
            while after[last] != NONE and owner[after[last]] in usable:
                last = after[last]
                found += chunks.size[last]
            if found >= size:
                while first != NONE and owner[first] in usable:
                    if owner[first] == anyone.number:
                        anyone.bins.remove(chunks.key(first))
                        first = self.merge(lane, first)
                    first = after[first]
                return True
        return False

    def whole(self, regions: Regions) -> list[int]:
        """The chunks that are a whole region and free for all, the region unused for longest first."""
        chunks, number = self._chunks, self.anyone.number
        firsts = [regions.first[region] for region in regions.idle]
        return [first for first in firsts if chunks.owner[first] == number and chunks.after[first] == NONE]

    def waiting(self) -> int:
        """Bytes that are free for one stream only."""
        size = self._chunks.size
        return sum(size[handle] for lane in self.of.values() if lane.number for handle in lane.bins.handles())
