"""Open a scheduler: what the user asks for is checked, the scheduler runs for a block, and is closed behind it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio
from plait.devices import Device, usable_cores
from plait.devices import device as find_device
from plait.devices import devices as all_devices
from plait.devices.sim import Machine, SimDevice, Simulation
from plait.errors import PlaitError, PlanError
from plait.scheduler.machine_costs import cost_function
from plait.scheduler.memory import MemoryLimit, checked_limits
from plait.scheduler.place import Places
from plait.scheduler.policies import Policy, find
from plait.scheduler.policies.cost_model import CostModel
from plait.scheduler.scheduler import Scheduler, checked_on_error
from plait.scheduler.seeing.observe import Observer


@asynccontextmanager
async def open_scheduler(
    *,
    devices: str | Device | Machine | Iterable[str | Device] = "all",
    streams: int = 4,
    policy: str | Policy = "critical-path",
    memory_limit: MemoryLimit = None,
    on_error: str = "stop",
    trace: bool = True,
    stall_after: float | None = None,
    telemetry: bool | str = False,
    ranges: bool = False,
    costs: CostModel | str | os.PathLike[str] | None = None,
) -> AsyncIterator[Scheduler]:
    """A scheduler over ``devices`` ("all", a name, or several) with ``streams`` compute streams on each.

    ``devices`` may also be a simulated machine (``plait.machine``): runs then take virtual time, which is that of a
    ``trio.testing.MockClock`` if trio runs under one.
    ``costs`` is what items took before, or a JSON file of that: it is asked for the cost of items that give none and
    learns from every traced run; a file is written when the scheduler closes.

    ``memory_limit``: the most bytes (an int) or the largest fraction of a device's memory (a float) that runs may hold,
    for each GPU, or for the host where there is no other device; or a mapping from device names to such. The caller's
    own arrays do not count. Items for which there is no room wait, and what is not in use is moved away: from a device
    to the host, from the host to a file.

    ``stall_after``: a run in which nothing has happened for so many seconds says once what it waits for, in the log
    ``plait.scheduler`` or else on standard error. ``telemetry``: metrics and a span for each run by OpenTelemetry's
    API; "items" for a span for each item too. ``ranges``: device items are named in the vendor's tools (NVTX, ROCTX)
    while they are enqueued.

    Leaving the block waits for the runs that are under way; leaving it by an error or a cancel stops them. Either way
    nothing of them is left running. A run that failed and was never awaited raises its RunFailed here.
    """
    if not trio.lowlevel.in_trio_run():
        raise PlaitError(
            "open_scheduler needs a running trio loop: trio.run(main) from plain code; under asyncio, "
            "await plait.run_async(graph, ...) for each run, or run trio in a thread of its own"
        )
    if not isinstance(streams, int) or isinstance(streams, bool) or not 1 <= streams <= 250:
        raise PlanError(f"streams must be an integer from 1 to 250, not {streams!r}")
    find(policy)
    checked_on_error(on_error)
    simulation = Simulation(devices) if isinstance(devices, Machine) else None
    if simulation is not None:
        cost_function(simulation.machine.costs)  # a wrong one should fail here
        if costs is not None:
            raise PlanError("what items take on a simulated machine comes with it: plait.machine(..., costs=...)")
    chosen = _chosen(devices) if simulation is None else simulation.devices
    model = costs if costs is None or isinstance(costs, CostModel) else CostModel.load(costs)
    observer = Observer(stall_after, telemetry)
    limits = None
    if memory_limit is not None:
        chosen = all_devices() if chosen is None else chosen
        limits = checked_limits(memory_limit, chosen, Places(chosen).names)
        if simulation is not None and limits[0] is not None:
            raise PlanError("a simulated host has nowhere to move to: give memory_limit for its devices")
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        scheduler = Scheduler(
            chosen, streams, policy, on_error, trace, nursery, limits, observer, ranges, model, simulation
        )
        try:
            yield scheduler
        except BaseException as error:
            failure = error
            nursery.cancel_scope.cancel()
    await scheduler._close()
    if model is not None and not isinstance(costs, CostModel | None) and trace:
        with contextlib.nullcontext() if failure is None else contextlib.suppress(OSError):  # the first error counts
            model.save(costs)
    if failure is not None:
        raise failure
    scheduler._raise_unseen()


def _chosen(devices: str | Device | Machine | Iterable[str | Device]) -> tuple[Device, ...] | None:
    assert not isinstance(devices, Machine)
    if isinstance(devices, str) and devices.lower() == "all":
        return None
    wanted = [devices] if isinstance(devices, str | Device) else list(devices)
    found = tuple(find_device(each) if isinstance(each, str) else each for each in wanted)
    for device in found:
        if isinstance(device, SimDevice):
            raise PlanError(
                f"{device.name} is simulated and runs nothing beside real devices: open the scheduler with "
                "devices=plait.machine(...)"
            )
    return found


def default_streams() -> int:
    """Compute streams for ``plait.run``: one for each core this process may use, at most 8."""
    return max(1, min(8, usable_cores()))
