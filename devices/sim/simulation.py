"""One simulation of a machine: its virtual time, its devices, the ports of its links."""

from __future__ import annotations

from typing import Any

from plait.devices.sim.clock import VirtualTime, to_ns
from plait.devices.sim.device import SimDevice
from plait.devices.sim.free import FreeRun
from plait.devices.sim.lane import SimLane
from plait.devices.sim.links import Port
from plait.devices.sim.memory import Tally
from plait.devices.sim.model import HOST, HostModel, LinkModel, Machine


class SimHost:
    """The host of a simulation."""

    platform = HOST
    name = HOST
    ordinal = 0

    def __init__(self, simulation: Simulation, model: HostModel) -> None:
        self.simulation = simulation
        self.model = model
        self.memory = Tally(HOST, model.memory_bytes)

    def __repr__(self) -> str:
        return f"<SimHost of {self.simulation.machine.name}>"

    @property
    def description(self) -> HostModel:
        """Its model: what the machine's file says of it."""
        return self.model

    def stream(self, *, kind: str = "compute", name: str = "host") -> SimLane:
        """A lane that serves items of the host."""
        return self.simulation.lane(name)


class Simulation:
    """A machine in motion; every scheduler that is opened on a machine has one of its own."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.time = VirtualTime()
        self.host = SimHost(self, machine.host)
        self.sim_devices = [SimDevice(self, model) for model in machine.devices]
        self.free = FreeRun(self.time)
        self.ports: dict[tuple[str, ...], Port] = {}
        self._routes: dict[tuple[str, str], tuple[int, tuple[Port, ...]]] = {}

    @property
    def devices(self) -> tuple[Any, ...]:
        """The host and the devices, in the machine's order."""
        return (self.host, *self.sim_devices)

    def lane(self, name: str) -> SimLane:
        """A stand-in for a stream of the host."""
        return SimLane(self.time, name)

    def route(self, source: str, target: str) -> tuple[int, tuple[Port, ...]]:
        """Latency in nanoseconds, and the ports that bytes from one place to another go through."""
        found = self._routes.get((source, target))
        if found is None:
            link = self.machine.link(source, target)
            hops = (
                [(source, target)] if link is not None or HOST in (source, target) else [(source, HOST), (HOST, target)]
            )
            latency, ports = 0.0, []
            for start, end in hops:
                hop = self.machine.link(start, end)
                assert hop is not None, "the loader sees to it that the host is joined to all"
                latency += hop.latency_s
                ports += self._ports(hop, start, end)
            found = self._routes[source, target] = to_ns(latency), tuple(dict.fromkeys(ports))
        return found

    def _ports(self, link: LinkModel, source: str, target: str) -> list[Port]:
        keys: list[tuple[str, ...]]
        if link.sharing == "pair":
            keys = [(link.name, source, target)]
        elif link.sharing == "end":
            keys = [(link.name, source, "out"), (link.name, "in", target)]
        else:
            keys = [(link.name,)]
        return [self.ports.setdefault(key, Port(link.name, link.bytes_per_s / 1e9)) for key in keys]

    def launch_ns(self, place: int) -> int:
        """How long the host is busy with starting one item on the device in that place, counted from 1."""
        return to_ns(self.machine.devices[place - 1].launch_s)

    def slowed(self, device: SimDevice, took_ns: int) -> int:
        """What an operation takes on a device at this moment."""
        return took_ns

    def lateness_ns(self, device: SimDevice) -> int:
        """How much later than it should the host hears of a device's completions at this moment."""
        return 0
