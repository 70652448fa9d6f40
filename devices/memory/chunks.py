"""The chunks that regions are cut into, as flat lists by handle, and the lanes that free ones lie in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from plait.devices.memory.bins import MOST_CHUNKS, Bins, key_of
from plait.errors import DeviceError

USED, QUICK, LOOSE = -1, -2, -3  # instead of a lane's number: taken; in a lane's exact lists; in the pool's hands
NONE = -1  # instead of a handle

Passed = Callable[[], bool]


class Chunks:
    """What is known of each chunk. A region's chunks are linked by address, so that neighbours can be joined.

    ``owner`` is the number of the lane in whose bins a free chunk lies, or USED, QUICK, LOOSE; ``epoch`` the epoch of
    its lane when it was freed.
    """

    __slots__ = ("_spare", "after", "before", "epoch", "owner", "region", "size", "start", "tag")

    def __init__(self) -> None:
        self.start: list[int] = []
        self.size: list[int] = []
        self.region: list[int] = []
        self.before: list[int] = []
        self.after: list[int] = []
        self.owner: list[int] = []
        self.epoch: list[int] = []
        self.tag: list[Any] = []
        self._spare: list[int] = []

    def new(self, start: int, size: int, region: int, before: int, after: int) -> int:
        """A chunk in the pool's hands, linked to nothing yet by the others."""
        if self._spare:
            handle = self._spare.pop()
            self.start[handle], self.size[handle], self.region[handle] = start, size, region
            self.before[handle], self.after[handle] = before, after
            self.owner[handle], self.epoch[handle] = LOOSE, 0
            return handle
        handle = len(self.start)
        if handle >= MOST_CHUNKS:
            raise DeviceError(f"a pool cannot hold more than {MOST_CHUNKS} chunks")
        for values, value in (
            (self.start, start),
            (self.size, size),
            (self.region, region),
            (self.before, before),
            (self.after, after),
            (self.owner, LOOSE),
            (self.epoch, 0),
        ):
            values.append(value)
        self.tag.append(None)
        return handle

    def cut(self, handle: int, size: int) -> int:
        """Cut a chunk after ``size`` bytes; gives the new chunk of the rest, of the same epoch."""
        after = self.after[handle]
        rest = self.new(
            self.start[handle] + size, self.size[handle] - size, self.region[handle], before=handle, after=after
        )
        self.epoch[rest] = self.epoch[handle]
        if after != NONE:
            self.before[after] = rest
        self.after[handle] = rest
        self.size[handle] = size
        return rest

    def join(self, handle: int) -> None:
        """A chunk takes in the one after it, and is as late as the later of both."""
        gone = self.after[handle]
        after = self.after[handle] = self.after[gone]
        if after != NONE:
            self.before[after] = handle
        self.size[handle] += self.size[gone]
        self.epoch[handle] = max(self.epoch[handle], self.epoch[gone])
        self.drop(gone)

    def drop(self, handle: int) -> None:
        """Forget a chunk; its handle is used again."""
        self.owner[handle] = LOOSE
        self._spare.append(handle)

    def key(self, handle: int) -> int:
        """The chunk as bins sort it."""
        return key_of(self.size[handle], self.start[handle], handle)


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


def merge(chunks: Chunks, lane: Lane, handle: int) -> int:
    """Put a free chunk into a lane's bins, joined with its free neighbours there; gives the chunk that results."""
    number, owner, bins = lane.number, chunks.owner, lane.bins
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


def flush(chunks: Chunks, lane: Lane) -> None:
    """Join what lies in the exact lists with its neighbours."""
    if lane.quick:
        quick, lane.quick = lane.quick, {}
        for handles in quick.values():
            for handle in handles:
                lane.newest = max(lane.newest, chunks.epoch[handle])
                merge(chunks, lane, handle)


def annex(chunks: Chunks, lane: Lane, anyone: Lane, size: int) -> bool:
    """Join ``size`` bytes of neighbours that are free for a stream or for all, in its lane; whether there are so many.

    The last resort: other streams may have these bytes only once this one has passed.
    """
    if lane is anyone or not lane.bins:
        return False
    usable = (lane.number, anyone.number)
    for handle in lane.bins.handles():
        first, last, found = handle, handle, chunks.size[handle]
        while chunks.before[first] != NONE and chunks.owner[chunks.before[first]] in usable:
            first = chunks.before[first]
            found += chunks.size[first]
        while chunks.after[last] != NONE and chunks.owner[chunks.after[last]] in usable:
            last = chunks.after[last]
            found += chunks.size[last]
        if found >= size:
            while first != NONE and chunks.owner[first] in usable:
                if chunks.owner[first] == anyone.number:
                    anyone.bins.remove(chunks.key(first))
                    first = merge(chunks, lane, first)
                first = chunks.after[first]
            return True
    return False


_MOST_MARKS = 8
