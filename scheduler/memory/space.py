"""One memory space of a scheduler: its limit, what runs hold in it, what is promised, and what has been moved."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpaceUse:
    """Bytes of one memory space: what runs hold, the most they held, and what was moved out of it and back.

    ``reserved`` is promised to items that are about to make results and to leases.
    """

    name: str
    limit: int | None
    in_use: int
    reserved: int
    peak: int
    moved_out: int
    moved_in: int


class Space:
    """The counts of one space; guarded by the dispatcher's lock."""

    __slots__ = (
        "granted", "held", "leased", "limit", "moved_in", "moved_out", "moving", "name", "peak", "reserved", "unsized",
    )  # fmt: skip

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self.limit = limit
        self.held = 0  # arrays that runs hold here, also those under way in or out
        self.reserved = 0  # promised: results to come, loads to come
        self.leased = 0
        self.peak = 0
        self.granted = 0  # items that may run and have not ended
        self.moving = 0  # moves under way
        self.unsized = 0  # of the granted ones, those whose results may have any size
        self.moved_out = self.moved_in = 0

    @property
    def free(self) -> int:
        """What is neither held nor promised; negative after a result that was larger than expected."""
        return (self.limit or 0) - self.held - self.reserved - self.leased

    def take(self, nbytes: int) -> None:
        """Bytes are held from now on."""
        self.held += nbytes
        self.peak = max(self.peak, self.held + self.leased)

    def use(self) -> SpaceUse:
        """A snapshot."""
        return SpaceUse(
            self.name, self.limit, self.held, self.reserved + self.leased, self.peak, self.moved_out, self.moved_in
        )
