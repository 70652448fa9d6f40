"""What a machine is, as data: devices, the host, and the links between them. Seconds, bytes, and rates per second."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

HOST = "host"
SHARINGS = ("pair", "end", "all")


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One device. ``streams`` compute items run side by side at full speed; so many copies at once as ``copies_*`` say.

    ``launch_s`` is how long the host is busy with starting one item there. ``memory_bytes`` None means no limit.
    """

    kind: str
    ordinal: int
    model: str = ""
    streams: int = 1
    copies_in: int = 1
    copies_out: int = 1
    copies_peer: int = 1
    memory_bytes: int | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    launch_s: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.ordinal}"

    def __str__(self) -> str:
        memory = "any memory" if self.memory_bytes is None else f"{self.memory_bytes} bytes of memory"
        return f"simulated{f' {self.model}' if self.model else ''}, {self.streams} at once, {memory}"

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DeviceModel:
        """What ``to_json`` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class HostModel:
    """The host: so many items at once as it has ``workers``; each costs ``overhead_s`` beside its own time."""

    workers: int = 1
    model: str = ""
    memory_bytes: int | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    overhead_s: float = 0.0
    kind: str = HOST
    name: str = HOST

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HostModel:
        """What ``to_json`` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What joins two kinds of ends, or two named ones, each direction with ``bytes_per_s``.

    ``sharing`` says who shares that: ``pair``, nobody, each pair of ends has its own; ``end``, all transfers that leave
    one end, and all that arrive at one; ``all``, every transfer over it in either direction.
    """

    name: str
    between: tuple[str, str]
    bytes_per_s: float
    latency_s: float = 0.0
    sharing: str = "pair"

    def joins(self, first: str, second: str) -> bool:
        """Whether it leads from one place to the other, in either direction."""
        left, right = self.between
        return (_means(left, first) and _means(right, second)) or (_means(left, second) and _means(right, first))


@dataclass(frozen=True, slots=True)
class Machine:
    """A simulated machine, to be given to ``open_scheduler(devices=...)``; make one with ``plait.machine``.

    ``dry``: no function is called and no array made, only sizes are counted. ``noise`` spreads the items' times by that
    part of each, drawn by ``seed``. ``costs`` is asked first for an item's seconds (see
    ``plait.scheduler.machine_costs``), and ``faults`` are what goes wrong. ``calls`` says when in its time an item's
    function is called: at its ``end``, its ``start``, or ``either``, drawn by the seed. ``speed`` divides the seconds
    that are given for items on devices.
    """

    name: str
    host: HostModel
    devices: tuple[DeviceModel, ...]
    links: tuple[LinkModel, ...]
    dry: bool = False
    seed: int = 0
    noise: float = 0.0
    costs: Any = None
    faults: tuple[Any, ...] = ()
    speed: float = 1.0
    calls: str = "end"

    def link(self, first: str, second: str) -> LinkModel | None:
        """The first link that joins two places, None if they meet only through the host."""
        return next((link for link in self.links if link.joins(first, second)), None)

    def scaled(self, *, link: float = 1, compute: float = 1, memory: float = 1, latency: float = 1) -> Machine:
        """What if: links so many times as fast, items, memory as large, latencies and launches as long."""
        devices = tuple(
            dataclasses.replace(
                device,
                memory_bytes=_times(device.memory_bytes, memory, int),
                flops_per_s=_times(device.flops_per_s, compute),
                bytes_per_s=_times(device.bytes_per_s, compute),
                launch_s=device.launch_s * latency,
            )
            for device in self.devices
        )
        links = tuple(
            dataclasses.replace(each, bytes_per_s=each.bytes_per_s * link, latency_s=each.latency_s * latency)
            for each in self.links
        )
        return dataclasses.replace(self, devices=devices, links=links, speed=self.speed * compute)


def _means(end: str, name: str) -> bool:
    return name == end or name.partition(":")[0] == end


def _times(value: Any, factor: float, kind: Any = float) -> Any:
    return None if value is None else kind(value * factor)
