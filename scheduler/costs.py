"""What items take: measured before, given with the item, or from a device's speed (the roofline)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from plait.devices.sim import DeviceModel, HostModel, Machine
from plait.errors import PlanError
from plait.graph import BARRIER, WorkItem
from plait.graph.item import function_name

if TYPE_CHECKING:
    from plait.scheduler.trace import Trace

CostFunction = Callable[[WorkItem, str, int], float | None]


@dataclass(frozen=True)
class CostModel:
    """Seconds by item's name and by function's name, as measured.

    ``items`` is asked first, then ``kernels``. A kernel's value is a number, or a mapping from the bytes that an item
    touches to one: between two sizes the time is interpolated, beyond them it grows in proportion.
    """

    items: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, float | Mapping[int, float]] = field(default_factory=dict)

    @classmethod
    def from_trace(cls, trace: Trace) -> CostModel:
        """The seconds that each item took in a run; of each kernel, the mean of its items."""
        items: dict[str, float] = {}
        groups: dict[str, list[float]] = {}
        records = trace.records
        spans = (records["end_ns"] - records["start_ns"]).tolist()
        for index, span in zip(records["item"].tolist(), spans, strict=True):
            name = trace.names[index]
            items[name] = span / 1e9
            groups.setdefault(name.partition("#")[0], []).append(span / 1e9)
        return cls(items, {name: math.fsum(spans) / len(spans) for name, spans in groups.items()})

    def __call__(self, item: WorkItem, kind: str, nbytes: int) -> float | None:
        """Seconds of an item that touches ``nbytes``; None if nothing is known of it."""
        found = self.items.get(item.name)
        if found is not None:
            return found
        kernel = self.kernels.get(function_name(item.function) or item.kind)
        return _at_size(kernel, nbytes) if isinstance(kernel, Mapping) else kernel


def _at_size(sizes: Mapping[int, float], nbytes: int) -> float | None:
    known = sorted(sizes)
    if not known:
        return None
    if nbytes <= known[0] or len(known) == 1 or nbytes >= known[-1]:
        nearest = known[0] if nbytes <= known[0] else known[-1]
        return sizes[nearest] * (nbytes / nearest if nearest and nbytes > nearest else 1)
    above = next(size for size in known if size >= nbytes)
    below = max(size for size in known if size < nbytes)
    part = (nbytes - below) / (above - below)
    return sizes[below] + part * (sizes[above] - sizes[below])


def cost_function(costs: Any) -> CostFunction | None:
    """Whatever a machine was given as ``costs``, as one function; PlanError if it is none of the three."""
    if costs is None or callable(costs):
        return costs  # type: ignore[no-any-return]
    if isinstance(costs, Mapping):
        return CostModel(kernels=costs)
    raise PlanError(
        f"costs is a CostModel, a mapping from a function's name to seconds, or a function of (item, device kind, "
        f"bytes) that returns seconds or None, not {type(costs).__name__}"
    )


class Costs:
    """The seconds of items on a machine's devices, the first that is known of: its ``costs``, the item's own, its size.

    An item's own ``cost`` has seconds for the kind of device, or ``flops`` and ``bytes`` of which the slower counts
    (Williams, Waterman, Patterson, CACM 2009). An item that says nothing takes as long as its bytes need.
    """

    def __init__(self, machine: Machine) -> None:
        self._asked = cost_function(machine.costs)
        self._speed = machine.speed
        self._noise = machine.noise
        self._seed = machine.seed

    def seconds(self, item: WorkItem, model: DeviceModel | HostModel, nbytes: int) -> float:
        """What the item takes there when it touches ``nbytes``, without noise."""
        if item.kind == BARRIER:
            return 0.0
        speed = 1.0 if model.kind == "host" else self._speed
        if self._asked is not None:
            found = self._asked(item, model.kind, nbytes)
            if found is not None:
                return found / speed
        cost: Any = item.options.cost
        if cost is None:
            return _quotient(nbytes, model.bytes_per_s)
        if not isinstance(cost, Mapping):
            return float(cost) / speed
        if model.kind in cost:
            return cost[model.kind] / speed  # type: ignore[no-any-return]
        return max(
            _quotient(cost.get("flops", 0), model.flops_per_s), _quotient(cost.get("bytes", nbytes), model.bytes_per_s)
        )

    def spread(self, count: int) -> list[float] | None:
        """The factors of the noise by item, None without; the same for a seed on every computer."""
        if not self._noise:
            return None
        random = Random(self._seed).random
        # The sum of four uniform numbers is near enough to a normal one, and takes no logarithm that computers round
        # differently.
        width = self._noise * math.sqrt(3)
        return [max(0.05, 1 + width * (random() + random() + random() + random() - 2)) for _ in range(count)]


def _quotient(amount: float, rate: float | None) -> float:
    return amount / rate if rate else 0.0
