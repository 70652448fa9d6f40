"""Transfers under way over links that they share: each port gives its flows equal parts of its bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from plait.devices.sim.clock import VirtualTime


class Port:
    """One direction of a link's end, or a whole bus: ``rate`` bytes per nanosecond for all flows together."""

    __slots__ = ("flows", "moved", "name", "rate")

    def __init__(self, name: str, rate: float) -> None:
        self.name = name
        self.rate = rate
        self.flows: list[Flow] = []
        self.moved = 0  # bytes of the flows that have ended


class Flow:
    """Bytes on their way through ports; its rate is the least of its parts, set anew when a flow comes or goes."""

    __slots__ = ("_changed_ns", "_left", "_ports", "_rate", "_turn", "done", "nbytes")

    def __init__(self, ports: Sequence[Port], nbytes: int, done: Callable[[], object]) -> None:
        self._ports = ports
        self.nbytes = nbytes
        self.done = done
        self._left = float(nbytes)
        self._rate = 0.0
        self._changed_ns = 0
        self._turn = 0

    def start(self, time: VirtualTime) -> None:
        """Begin now; ``done`` is called when the last byte is there."""
        self._changed_ns = time.now_ns
        for port in self._ports:
            port.flows.append(self)
        _share(time, self._ports)

    def _pace(self, time: VirtualTime) -> None:
        now = time.now_ns
        self._left = max(0.0, self._left - self._rate * (now - self._changed_ns))
        rate = min(port.rate / len(port.flows) for port in self._ports)
        self._changed_ns = now
        if rate != self._rate or not self._turn:
            self._rate = rate
            self._turn += 1
            time.at(now + ceil(self._left / rate), self._due, time, self._turn)

    def _due(self, time: VirtualTime, turn: int) -> None:
        if turn != self._turn:
            return  # its rate has changed since
        self._turn = -1
        for port in self._ports:
            port.flows.remove(self)
            port.moved += self.nbytes
        _share(time, self._ports)
        self.done()


def _share(time: VirtualTime, ports: Sequence[Port]) -> None:
    seen: list[Flow] = []
    for port in ports:
        for flow in port.flows:
            if flow not in seen:
                seen.append(flow)
                flow._pace(time)
