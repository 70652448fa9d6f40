"""A place in the queue for memory: an item, or a lease, for which room is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.scheduler.memory.residency import Residency


class Claim:
    """``owner`` and ``position`` tell the item; without owner it is a lease, and ``wanted`` says all it needs.

    While its turn lasts, what the item uses is pinned and ``gathered`` holds the bytes put aside for it per place.
    """

    __slots__ = (
        "gathered", "number", "on_granted", "owner", "places", "position", "priority", "stuck",
        "turn", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        owner: Residency | None,
        position: int,
        places: tuple[int, ...],
        priority: int,
        number: int,
        wanted: dict[int, int] | None = None,
        on_granted: Callable[[], None] | None = None,
    ) -> None:
        self.owner = owner
        self.position = position
        self.places = places
        self.priority = priority
        self.number = number
        self.wanted = wanted or {}
        self.on_granted = on_granted
        self.turn = False
        self.stuck = False
        self.gathered = dict.fromkeys(places, 0)
