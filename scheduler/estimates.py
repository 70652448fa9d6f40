"""What a simulated run needs to know beforehand, per position: the nanoseconds of items, the bytes of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.devices.sim import DeviceModel, FailedItem, HostModel, PlantedError
from plait.graph import WorkItem
from plait.scheduler.expand import HOST
from plait.scheduler.machine_costs import Costs

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan


class Estimates:
    """``took_ns`` by position (0 for transfers, whose time is their link's), ``nbytes`` by slot (-1: not known)."""

    def __init__(self, plan: Plan, costs: Costs, values: list[Any]) -> None:
        machine = costs.machine
        models: list[DeviceModel | HostModel] = [machine.host, *machine.devices]
        spread = costs.spread(len(plan.program.items))
        overhead = machine.host.overhead_s
        nbytes = [-1 if value is None else int(getattr(value, "nbytes", 0)) for value in values]
        for buffer in plan.program.declared:
            size = buffer.nbytes
            if size is not None:
                nbytes[buffer.index] = size
        kinds, slot, order, work = plan.kinds, plan.expansion.slot, plan.order.tolist(), plan.work
        took_ns = [0] * len(kinds)
        same: dict[int, int] = {}  # equal times are one object: a long run has few different ones
        for position, kind in enumerate(kinds):
            item, place = work[order[position]], kind // 3
            if not isinstance(item, WorkItem):
                if item.source is not None:
                    nbytes[item.target_slot] = nbytes[item.source_slot]
                elif item.buffer is not None and item.buffer.nbytes is not None:
                    nbytes[item.target_slot] = item.buffer.nbytes
                continue
            first, options = item.first_result, item.options
            if first >= 0 and options.nbytes is not None:
                for number in range(options.outputs):
                    nbytes[slot(place, first + number)] = options.nbytes
            total = 0
            for each in plan.touched[position]:
                if nbytes[each] > 0:
                    total += nbytes[each]
            seconds = costs.seconds(item, models[place], total)
            if spread is not None:
                seconds *= spread[item.index]
            if place == HOST:
                seconds += overhead
            ns = round(seconds * 1e9)
            took_ns[position] = same.setdefault(ns, ns)
        self.took_ns = took_ns
        self.nbytes = nbytes
        self.planted: dict[int, PlantedError] = {}

    def plant(self, plan: Plan, fault: FailedItem) -> None:
        """An item fails in its first attempts; each takes its time."""
        position = plan.position(fault.item)
        attempts = 1 + plan.item(position).options.retries
        self.took_ns[position] *= min(attempts, fault.times + 1)
        if fault.times >= attempts:
            self.planted[position] = PlantedError(f"item {fault.item!r} was made to fail, {attempts} times")
