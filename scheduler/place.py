"""Where each item runs: on the host, on the device that it asks for, or on one of several that would do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait.devices import Device, GpuDevice
from plait.devices.sim import SimDevice
from plait.errors import PlanError
from plait.graph import BARRIER, CALL, Program, WorkItem
from plait.scheduler.expand import HOST

GPU = "gpu"  # asks for any device that is not the host
_TRANSFER = 0.5  # cost of bringing one argument from another device, in mean items, where sizes are unknown


class Places:
    """The places of a scheduler: the host, then each device that can launch work items, in the given order."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.host = next((device for device in devices if device.platform == "host"), None)
        self.devices: list[Any] = [device for device in devices if isinstance(device, GpuDevice | SimDevice)]
        self.names = ("host", *(device.name for device in self.devices))
        self._by_name: dict[str, tuple[int, ...]] = {"host": (HOST,), "host:0": (HOST,)} if self.host else {}
        for place, device in enumerate(self.devices, 1):
            self._by_name[device.name.lower()] = (place,)
            for several in (device.platform.lower(), GPU):
                self._by_name[several] = (*self._by_name.get(several, ()), place)

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


def place_items(
    program: Program, places: Places, cost: Sequence[float], is_async: Callable[[WorkItem], bool]
) -> list[int | None]:
    """A place per item, in program order; None where the data should decide (copies, fills, barriers).

    Among several devices an item goes where it would finish first, counting what its arguments' producers take, what
    that device has to do already, and a transfer for each argument that lies elsewhere (list scheduling by earliest
    finish: Topcuoglu, Hariri, Wu, IEEE TPDS 2002, without insertion).
    """
    offsets, sources = program.edges.predecessors()
    starts, flat = offsets.tolist(), sources.tolist()
    free = [0.0] * len(places.names)
    finish = [0.0] * len(program.items)
    chosen: list[int | None] = []
    mean = sum(cost) / len(cost) if len(cost) else 0.0
    for index, item in enumerate(program.items):
        before = flat[starts[index] : starts[index + 1]]
        ready = max((finish[other] for other in before), default=0.0)
        if item.kind is BARRIER or (item.kind is not CALL and item.options.device is None):
            chosen.append(None)
            finish[index] = ready
            continue
        candidates = places.candidates(item)
        if is_async(item):
            if HOST not in candidates:
                raise PlanError(
                    f"item {item.name!r} (recorded at {item.site}) is an async function, which is awaited on the "
                    f"host's loop and cannot run on {item.options.device!r}"
                )
            candidates = (HOST,)
        if len(candidates) == 1:
            best = candidates[0]
            end = ready + cost[index]
        else:
            end, best = min(
                (
                    max(ready, free[place])
                    + cost[index]
                    + sum(_TRANSFER * mean for other in before if chosen[other] not in (None, place)),
                    place,
                )
                for place in candidates
            )
        chosen.append(best)
        finish[index] = end
        if best != HOST:
            free[best] = max(free[best], end)
    return chosen
