"""What items take: measured before, given with the item, or from a device's speed (the roofline)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from plait.devices.sim import DeviceModel, HostModel, Machine
from plait.errors import PlanError
from plait.graph import BARRIER, WorkItem
from plait.graph.item import function_name
from plait.scheduler.seeing.waits import find_waits
from plait.scheduler.trace import Trace

CostFunction = Callable[[WorkItem, str, int], float | None]


@dataclass(frozen=True)
class ItemTimes:
    """The seconds that each item of a graph took in one run, by its name; of others, the mean of their kernel's items.

    For the same graph again. What kernels take at other sizes is learnt by ``plait.scheduler.policies``' cost model.
    ``gap_s`` is what a compute stream of the host lost before an item, in the mean: seconds from when it was free and
    the item ready to when the item began. It is the ``overhead_s`` of a ``HostModel`` that should take as long.
    """

    items: Mapping[str, float]
    kernels: Mapping[str, float]
    gap_s: float = 0.0

    @classmethod
    def from_trace(cls, trace: Trace) -> ItemTimes:
        """The times of a run's items."""
        items: dict[str, float] = {}
        groups: dict[str, list[float]] = {}
        records = trace.records
        spans = (records["end_ns"] - records["start_ns"]).tolist()
        for index, span in zip(records["item"].tolist(), spans, strict=True):
            name = trace.names[index]
            items[name] = span / 1e9
            groups.setdefault(name.partition("#")[0], []).append(span / 1e9)
        kernels = {name: math.fsum(each) / len(each) for name, each in groups.items()}
        return cls(items, kernels, _mean_gap(trace))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ItemTimes:
        """The times in a trace file that a run wrote; PlaitError if it is none."""
        return cls.from_trace(Trace.load(path))

    def __call__(self, item: WorkItem, kind: str, nbytes: int) -> float | None:
        """Seconds of an item; None if nothing is known of it."""
        found = self.items.get(item.name)
        return self.kernels.get(function_name(item.function) or item.kind) if found is None else found


def _mean_gap(trace: Trace) -> float:
    """Seconds that compute streams of the host were free before an item which was ready, in the mean over items."""
    records = trace.records
    host = [name.startswith("host/compute") for name in trace.streams]
    free: dict[int, int] = {}
    gaps = []
    columns = (records[name].tolist() for name in ("stream", "start_ns", "end_ns"))
    for stream, start, end, ready in zip(*columns, find_waits(trace).ready.tolist(), strict=True):
        if host[stream]:
            gaps.append(max(0, start - max(ready, free.get(stream, 0))))
            free[stream] = end
    return math.fsum(gaps) / len(gaps) / 1e9 if gaps else 0.0


@dataclass(frozen=True)
class KernelTimes:
    """Seconds by function's name, as measured: a number, or a mapping from the bytes that an item touches to one.

    Between two sizes the time is interpolated, beyond the largest it grows in proportion.
    """

    kernels: Mapping[str, float | Mapping[int, float]]

    def __call__(self, item: WorkItem, kind: str, nbytes: int) -> float | None:
        """Seconds of an item that touches ``nbytes``; None if nothing is known of its function."""
        kernel = self.kernels.get(function_name(item.function) or item.kind)
        return _at_size(kernel, nbytes) if isinstance(kernel, Mapping) else kernel


def _at_size(sizes: Mapping[int, float], nbytes: int) -> float | None:
    known = sorted(sizes)
    above = next((size for size in known if size >= nbytes), None)
    below = next((size for size in reversed(known) if size < nbytes), None)
    if above is None:
        return sizes[below] * nbytes / below if below else None
    if below is None:
        return sizes[above]
    return sizes[below] + (nbytes - below) / (above - below) * (sizes[above] - sizes[below])


def cost_function(costs: Any) -> CostFunction | None:
    """Whatever a machine was given as ``costs``, as one function; PlanError if it cannot be one."""
    if costs is None or callable(costs):
        return costs  # type: ignore[no-any-return]
    if isinstance(costs, Mapping):
        return KernelTimes(costs)
    raise PlanError(
        f"costs is a mapping from a function's name to seconds (or to seconds by bytes), or a function of (item, "
        f"device kind, bytes touched) that returns seconds or None, not {type(costs).__name__}"
    )


class Costs:
    """The seconds of items on a machine's devices, the first that is known of: its ``costs``, the item's own, its size.

    An item's own ``cost`` has seconds for the kind of device; else its ``flops`` and the bytes that it touches tell,
    the slower of which counts (Williams, Waterman, Patterson, CACM 2009).
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
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
        given = item.options.cost_on(model.kind)
        if given is not None:
            return given / speed
        return max(_quotient(item.options.flops or 0, model.flops_per_s), _quotient(nbytes, model.bytes_per_s))

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


class PlannedCosts:
    """What a machine's items take, as a planner asks for it: a cost model that knows everything and learns nothing."""

    generation = 0

    def __init__(self, machine: Machine) -> None:
        self._costs = Costs(machine)
        models: list[DeviceModel | HostModel] = [*machine.devices, machine.host]
        self._models = {model.kind: model for model in models}

    def __len__(self) -> int:
        return 1

    def is_guess(self, name: str, kind: str, nbytes: int | None = None) -> bool:
        """Nothing is tried for the sake of knowing it."""
        return False

    def __call__(self, item: WorkItem, kind: str, nbytes: int | None) -> float | None:
        """Seconds of an item on devices of ``kind``; None if its size is not known and nothing else tells."""
        if kind not in self._models:
            return None
        seconds = self._costs.seconds(item, self._models[kind], nbytes or 0)
        return seconds if seconds or nbytes is not None else None
