"""Where items may run: the host and the devices of a scheduler, by the names that items ask for them with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait.devices import Device, GpuDevice
from plait.devices.sim import SimDevice
from plait.errors import PlanError
from plait.graph import WorkItem
from plait.scheduler.expand import HOST

GPU = "gpu"  # asks for any device that is not the host


class Places:
    """The places of a scheduler: the host, then each device that can launch work items, in the given order."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.host = next((device for device in devices if device.platform == "host"), None)
        self.devices: list[Any] = [device for device in devices if isinstance(device, GpuDevice | SimDevice)]
        self.names = ("host", *(device.name for device in self.devices))
        self.platforms = tuple(dict.fromkeys(device.platform for device in self.devices))
        self._with_host: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._by_name: dict[str, tuple[int, ...]] = {"host": (HOST,), "host:0": (HOST,)} if self.host else {}
        for place, device in enumerate(self.devices, 1):
            self._by_name[device.name.lower()] = (place,)
            for several in (device.platform.lower(), GPU):
                self._by_name[several] = (*self._by_name.get(several, ()), place)

    def with_host(self, platforms: tuple[str, ...]) -> tuple[int, ...]:
        """The host and all devices of some platforms; one tuple for all who ask."""
        found = self._with_host.get(platforms)
        if found is None:
            there = (place for place, device in enumerate(self.devices, 1) if device.platform in platforms)
            found = self._with_host[platforms] = (HOST, *there)
        return found

    def candidates(self, item: WorkItem) -> tuple[int, ...]:
        """The places where an item may run; PlanError if there is none."""
        wanted = item.options.device
        if wanted is None:
            if self.host is not None:
                return (HOST,)
            if self.devices:
                return tuple(range(1, len(self.names)))
            raise PlanError("the scheduler has no host device to run Python functions on: add 'host' to its devices")
        found = self._by_name.get(wanted.lower())
        if found is None:
            raise PlanError(
                f"item {item.name!r} (recorded at {item.site}) wants device {wanted!r}; "
                f"this scheduler has {', '.join(sorted(self._by_name)) or 'none'}"
            )
        return found
