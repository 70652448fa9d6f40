"""One simulation of a machine: its virtual time, its devices, the ports of its links."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from plait.devices.sim.clock import EPOCH_NS, VirtualTime, to_ns
from plait.devices.sim.device import SimDevice
from plait.devices.sim.faults import FailedItem, LateCompletion, SlowDevice
from plait.devices.sim.free import FreeRun
from plait.devices.sim.lane import SimLane
from plait.devices.sim.links import Port
from plait.devices.sim.memory import Tally
from plait.devices.sim.model import HOST, HostModel, LinkModel, Machine
from plait.errors import DeviceError, DeviceLost


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
        self.devices: tuple[Any, ...] = (self.host, *self.sim_devices)  # in the machine's order
        self.free = FreeRun(self.time)
        self.ports: dict[tuple[str, ...], Port] = {}
        self._routes: dict[tuple[str, str], tuple[int, tuple[Port, ...]]] = {}
        self._draw = Random(machine.seed)
        self._slow: list[SlowDevice] = []
        self._late: list[LateCompletion] = []
        for fault in machine.faults:
            self._plant(fault)

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

    def early(self) -> bool:
        """Whether the next function is called at the start of its item's time."""
        calls = self.machine.calls
        return calls == "start" or (calls == "either" and self._draw.random() < 0.5)

    def launch_ns(self, place: int) -> int:
        """How long the host is busy with starting one item on the device in that place, counted from 1."""
        return to_ns(self.machine.devices[place - 1].launch_s)

    def slowed(self, device: SimDevice, took_ns: int) -> int:
        """What an operation takes that starts on a device at this moment."""
        for fault in self._slow:
            if fault.device == device.name and self._within(fault):
                took_ns = round(took_ns * fault.factor)
        return took_ns

    def lateness_ns(self, device: SimDevice) -> int:
        """How much later than it happens the host hears of what ends on a device at this moment."""
        return sum(to_ns(fault.by_s) for fault in self._late if fault.device == device.name and self._within(fault))

    def _within(self, fault: SlowDevice | LateCompletion) -> bool:
        return fault.from_s <= (self.time.now_ns - EPOCH_NS) / 1e9 < fault.until_s

    def _plant(self, fault: Any) -> None:
        if isinstance(fault, FailedItem):
            return  # items are the scheduler's
        device = next((device for device in self.sim_devices if device.name == getattr(fault, "device", None)), None)
        if device is None:
            known = ", ".join(device.name for device in self.sim_devices) or "none"
            raise DeviceError(f"{fault!r} is no fault of machine {self.machine.name!r} (its devices: {known})")
        if isinstance(fault, SlowDevice):
            if not 0 < fault.factor < math.inf:
                raise DeviceError(f"{fault!r}: the factor must be a positive number")
            self._slow.append(fault)
        elif isinstance(fault, LateCompletion):
            self._late.append(fault)
        else:
            error = DeviceLost(f"{device.name} was lost after {fault.at_s} s, as planned")
            self.time.background(EPOCH_NS + to_ns(fault.at_s), device.lose, error)
