"""The end of a device's stream as lanes see it: what is in flight there, and what waits for room."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.devices import LaunchQueue
    from plait.scheduler.state import RunState

WINDOW = 64  # items in flight in one stream: deep enough to hide any launch, shallow enough to stop soon


class Tail:
    """A launch queue as the lanes see it: where its newest item stands, and how far it waits for other streams."""

    __slots__ = ("busy", "in_flight", "index", "key", "lost", "parked", "queue", "seen")

    def __init__(self, queue: LaunchQueue, key: int, index: int) -> None:
        self.queue = queue
        self.key = key  # tells it from every other of the scheduler
        self.index = index  # of its name
        self.busy: tuple[RunState | None, int] = None, -1  # the item that is being enqueued
        self.lost = False
        self.in_flight = 0
        self.seen: dict[int, int] = {}
        self.parked: list[tuple[RunState, int]] = []  # ready items for which there is no room
