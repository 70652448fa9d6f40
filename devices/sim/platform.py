"""The simulated platform by name: a small machine to try streams, events and memory on. Runs use ``plait.machine``."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from plait.devices.protocol import Device
from plait.devices.sim.model import DeviceModel, HostModel, LinkModel, Machine
from plait.devices.sim.simulation import Simulation

DEFAULT = Machine(
    name="sim",
    host=HostModel(workers=2),
    devices=tuple(
        DeviceModel("sim", ordinal, streams=4, memory_bytes=1 << 30, flops_per_s=1e12, bytes_per_s=1e11)
        for ordinal in range(2)
    ),
    links=(LinkModel("bus", ("host", "sim"), 1e10, 1e-6), LinkModel("peer", ("sim", "sim"), 2e10, 1e-6)),
)


class SimPlatform:
    """Devices of one simulation. Never among ``"all"`` devices: what runs there does no real work."""

    absent: str | None = None
    simulated = True

    def __init__(self, machine: Machine = DEFAULT) -> None:
        self.name = machine.devices[0].kind
        self._machine = machine

    def __repr__(self) -> str:
        return f"<SimPlatform {self._machine.name}>"

    @functools.cached_property
    def simulation(self) -> Simulation:
        """What its devices belong to."""
        return Simulation(self._machine)

    def devices(self) -> Sequence[Device]:
        return self.simulation.sim_devices


SIM = SimPlatform()
