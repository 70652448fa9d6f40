"""Who holds a device's memory when an allocation is refused: the arrays of the runs at work there, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from plait.devices import GpuDevice
from plait.errors import OutOfMemory
from plait.scheduler.report import format_bytes

if TYPE_CHECKING:
    from plait.scheduler.state import RunState

_MOST = 10


def with_holders(error: OutOfMemory, device: GpuDevice, place: int, states: Iterable[RunState]) -> OutOfMemory:
    """The error with what the driver has left, and the ten largest arrays that runs hold on the device."""
    free, total = device.memory_info()
    held = sorted((found for state in states for found in _held(state, place)), reverse=True)
    lines = [
        f"{error}",
        f"{device.name}: {format_bytes(free)} of {format_bytes(total)} free by the driver; "
        f"plait's runs hold {format_bytes(sum(nbytes for nbytes, _, _ in held))} in {len(held)} arrays",
        *(f"  {format_bytes(nbytes):>9}  {buffer} of graph {graph!r}" for nbytes, buffer, graph in held[:_MOST]),
    ]
    found = OutOfMemory("\n".join(lines))
    found.__cause__ = error.__cause__
    return found


def _held(state: RunState, place: int) -> Iterable[tuple[int, str, str]]:
    plan = state.plan
    if plan.on_device is None:
        return
    graph, literals = (
        plan.program.graph,
        {index: number for number, index in enumerate(plan.expansion.literals.values())},
    )
    for buffer, slot in plan.expansion.slots[place].items():
        value = state.values[slot] if slot < len(state.values) else None
        nbytes = getattr(value, "nbytes", 0)
        if nbytes:
            name = f"plain argument {literals[buffer]}" if buffer in literals else repr(graph.buffer_at(buffer).name)
            yield nbytes, name, graph.name
