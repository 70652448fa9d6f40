"""What stands for a stream of the host in a simulation: it calls what is enqueued, at the present virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.devices.sim.clock import VirtualTime


class SimLane:
    """One at a time serves, which is always this one: never contended."""

    __slots__ = ("_time", "name")
    contended = False

    def __init__(self, time: VirtualTime, name: str) -> None:
        self._time = time
        self.name = name

    def enqueue(self, function: Callable[..., object], /, *args: Any) -> None:
        """Call at this virtual time, behind what is due already."""
        self._time.at(self._time.now_ns, function, *args)

    def close(self) -> None:
        """Nothing is held."""
