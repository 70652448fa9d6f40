"""The chunks that regions are cut into, as flat lists by handle."""

from __future__ import annotations

from typing import Any

from plait.devices.memory.bins import MOST_CHUNKS, key_of
from plait.errors import DeviceError

USED, QUICK, LOOSE = -1, -2, -3  # instead of a lane's number: taken; in a lane's exact lists; in the pool's hands
NONE = -1  # instead of a handle


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
