"""The scheduler: one nursery in which runs of plans share the streams of the devices."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from array import array
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from numbers import Real
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import networkx as nx
import trio
from plait.devices import HOST, Device, HostDevice, bounded_blas, usable_cores
from plait.devices import devices as all_devices
from plait.devices.sim import SimHost, Simulation
from plait.errors import GraphError, PlaitError, PlanError
from plait.graph import Graph, Program
from plait.scheduler.collector import collector_paused
from plait.scheduler.compile import compile_plan
from plait.scheduler.costing import asks_for_devices, by_option
from plait.scheduler.deadline import check_deadline
from plait.scheduler.deferred import Sized
from plait.scheduler.inputs import checked_inputs
from plait.scheduler.lanes import COARSE_NS, Dispatcher
from plait.scheduler.learn import learn
from plait.scheduler.machine_costs import PlannedCosts
from plait.scheduler.memory import Arbiter, SpaceUse
from plait.scheduler.memory.lease import Lease, leased
from plait.scheduler.memory.usage import check_working_sets
from plait.scheduler.place import Places
from plait.scheduler.plan import Plan
from plait.scheduler.policies import Policy
from plait.scheduler.policies.cost_model import CostModel
from plait.scheduler.run import Outputs, Run
from plait.scheduler.seeing.observe import Observer
from plait.scheduler.state import RunState
from plait.scheduler.virtual_lanes import VirtualDispatcher

COPY_STREAMS = 2
_ON_ERROR = ("stop", "isolate")


class Scheduler:
    """Runs plans; open one with ``plait.open_scheduler``."""

    def __init__(
        self,
        devices: tuple[Device, ...] | None,
        streams: int,
        policy: str | Policy,
        on_error: str,
        trace: bool,
        nursery: trio.Nursery,
        limits: list[int | None] | None = None,
        observer: Observer | None = None,
        ranges: bool = False,
        costs: CostModel | None = None,
        simulation: Simulation | None = None,
    ) -> None:
        self._devices = devices
        self.observer = observer or Observer()
        self.observer.devices = lambda: self._devices or ()
        self.simulation = simulation
        self._has_lanes = False
        self._policy = policy
        self._on_error = on_error
        self._traced = trace
        self._nursery = nursery
        self._costs = costs
        self._planned: Any = costs if simulation is None else PlannedCosts(simulation.machine)
        self._learnt: WeakKeyDictionary[Plan, int] = WeakKeyDictionary()  # how much was known when it was made
        self._token = trio.lowlevel.current_trio_token()
        self._mail: deque[RunState] = deque()
        self._mail_sent = False
        self._runs: dict[RunState, Run] = {}
        self._failed: set[Run] = set()  # failed, and nobody has seen it yet
        self._grains: WeakKeyDictionary[Plan, int] = WeakKeyDictionary()
        self._closed = False
        self._serials = itertools.count()
        known: Any = (device for device in devices or () if isinstance(device, HostDevice | SimHost))
        host = next(known, HOST.devices()[0])
        self._compute = [host.stream(name=f"host/compute:{k}") for k in range(streams)]
        self._copy = [host.stream(kind="copy", name=f"host/copy:{k}") for k in range(COPY_STREAMS)]
        self.stream_names = [*(stream.name for stream in [*self._compute, *self._copy]), "loop"]
        self.dispatcher: Dispatcher = (
            Dispatcher(self._compute, self._copy, self._post, self._crowd)
            if simulation is None
            else VirtualDispatcher(simulation, self._compute, self._copy, self._post, nursery)
        )
        self.dispatcher.ranges = ranges
        self._bound: AbstractContextManager[None] | None = None
        self._sizes: WeakKeyDictionary[Plan, array[int]] = WeakKeyDictionary()
        self._limits = limits
        if limits is not None:
            self.dispatcher.memory = Arbiter(Places(self.devices).names, limits, self.dispatcher.look_again)
            self.dispatcher.memory.now_ns = self.dispatcher.now_ns

    @property
    def memory(self) -> dict[str, SpaceUse]:
        """Per memory space with a limit, what all runs hold now, the most they held, and what was moved; bytes."""
        arbiter = self.dispatcher.memory
        if arbiter is None:
            return {}
        with self.dispatcher.lock:
            return {space.name: space.use() for space in arbiter.spaces if space.limit is not None}

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that items may run on; with ``devices="all"``, found when first asked for."""
        if self._devices is None:
            self._devices = all_devices()
        return self._devices

    def compile(self, graph: Graph | nx.DiGraph[Any]) -> Plan:
        """The plan of ``graph`` for this scheduler's devices; the same plan again while the graph is unchanged, and
        while no cost of a kernel, device kind or size has come to be known that was not.
        """
        if not isinstance(graph, Graph):
            graph = Graph.from_networkx(graph)
        with collector_paused(len(graph.items)):
            program = graph.program()
            plan = graph.plans.get(self)
            known = self._costs.generation if self._costs is not None else 0
            if not isinstance(plan, Plan) or plan.program is not program or self._learnt[plan] != known:
                began = perf_counter()
                streams = len(self._compute), len(self._copy)
                needed = self._needed(program)
                plan = compile_plan(program, needed, streams, self._policy, self._planned, self._limits)
                if self._limits is not None:
                    check_working_sets(plan, self._limits)
                graph.plans[self] = plan
                self._learnt[plan] = known
                self.observer.compiled(graph.name, len(plan.calls), perf_counter() - began)
        return plan

    def start(
        self,
        runnable: Plan | Graph | nx.DiGraph[Any],
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        priority: int = 0,
        timeout: float | None = None,
        deadline: float | None = None,
        on_error: str | None = None,
        debug: str | None = None,
        **named: Any,
    ) -> Run:
        """Start a run and return at once. Inputs come by keyword, or in a mapping where a name is not free.

        ``timeout`` is in seconds; a larger ``priority`` is served first. ``deadline``, in seconds from now, is when the
        run should be done: of runs with one priority those with deadlines are served first, least slack before more; it
        stops nothing. ``debug="synchronous"`` waits for each device item before the next is enqueued, so that an error
        names the item that made it. GraphError for wrong inputs and PlanError for a deadline that, by the costs that
        are known, cannot be met, before anything runs; PlaitError after the scheduler has closed.
        """
        if self._closed:
            raise PlaitError("this scheduler is closed: start runs inside its `async with` block")
        if inputs is not None and not isinstance(inputs, Mapping):
            raise GraphError(f"inputs come by keyword or in a mapping of their names, not as {type(inputs).__name__}")
        for what, value, most in (("timeout", timeout, math.inf), ("deadline", deadline, sys.float_info.max)):
            if value is not None and not (isinstance(value, Real) and 0 < value <= most):
                raise PlaitError(f"{what} must be a positive number of seconds, not {value!r}")
        plan = runnable if isinstance(runnable, Plan) else self.compile(runnable)
        if plan.streams != (len(self._compute), len(self._copy)):
            raise PlanError("this plan was compiled for other streams: compile it with this scheduler")
        if deadline is not None:
            check_deadline(plan, deadline)
        if self._limits is not None:
            if plan.captured:
                raise PlanError("a captured plan keeps its device memory, so it cannot run under a memory_limit")
            if plan is runnable and plan not in self._sizes:  # not compiled just now, and maybe under other limits
                check_working_sets(plan, self._limits)
        joined = self._joined(plan)
        given = {**(inputs or {}), **named}
        if self.simulation is not None:
            given = self._simulated_inputs(plan, given, debug)
        bound, donated = checked_inputs(plan.program, given)
        isolate, synchronous = checked_on_error(on_error or self._on_error) == "isolate", _checked_debug(debug)
        with self.dispatcher.lock if self.dispatcher.memory is not None else contextlib.nullcontext():
            state = RunState(
                plan,
                bound,
                priority=priority,
                isolate=isolate,
                traced=self._traced,
                synchronous=synchronous,
                grain_ns=self._grains.get(plan, 0) if self.simulation is None else COARSE_NS,
                donated=donated,
                arbiter=self.dispatcher.memory,
                sizes=self._sizes.get(plan),
            )
        state.joins = joined
        if deadline is not None:
            state.deadline_ns = int(deadline * 1e9)
        state.serial = next(self._serials)
        if isinstance(self.dispatcher, VirtualDispatcher):
            self.dispatcher.estimate(state)
        run = Run(self, plan, state, timeout)
        self._runs[state] = run
        plan.program.graph.running += 1
        self.observer.began(run, self, self._nursery)
        self._nursery.start_soon(run._drive, name=f"run of {plan.program.graph.name}")
        return run

    def _simulated_inputs(self, plan: Plan, given: dict[str, Any], debug: str | None) -> dict[str, Any]:
        """What a run on a simulated machine is given: a dry one needs no values, only the sizes that are declared."""
        assert self.simulation is not None
        if debug is not None:
            raise PlanError(f"debug={debug!r} is for real devices: on a simulated one every item's error names it")
        if not self.simulation.machine.dry:
            return given
        memory = self.simulation.host.memory
        return {name: Sized(memory, buffer.nbytes or 0) for name, buffer in plan.program.inputs.items()} | given

    def _needed(self, program: Program) -> tuple[Device, ...]:
        """The devices to compile for: a program that asks for none needs no GPU to be looked for."""
        if self._devices is None and not any(by_option(program.items, asks_for_devices)):
            return (HOST.devices()[0],)
        return self.devices

    def _joined(self, plan: Plan) -> list[Any]:
        """Make ready the lanes of the devices that ``plan`` uses; events of the caller's own streams on them."""
        if plan.on_device is None:
            return []
        found = Places(self.devices)
        if plan.places != found.names:
            raise PlanError("this plan was compiled for other devices: compile it with this scheduler")
        if not self._has_lanes:
            self._has_lanes = True
            self.dispatcher.add_devices(found.devices, self.stream_names)
        used = [found.devices[place - 1] for place in plan.on_device.devices]
        for device in used:
            device.check()
        return [event for device in used for event in device.joins()]

    async def run(
        self, runnable: Plan | Graph | nx.DiGraph[Any], inputs: Mapping[str, Any] | None = None, /, **named: Any
    ) -> Outputs:
        """``await start(...)``; cancelling this wait cancels the run."""
        run = self.start(runnable, inputs, **named)
        try:
            return await run
        finally:
            run.cancel()

    def lease(self, device: str, nbytes: int, *, priority: int = 0) -> AbstractAsyncContextManager[Lease]:
        """``async with scheduler.lease("cuda:0", nbytes):`` keeps device memory for the caller's own code.

        It waits until so many bytes of the device's ``memory_limit`` are free, in turn with the items of runs, which
        are held back or moved away for it; the wait can be cancelled. Without a limit it does not wait. On a GPU, CuPy
        arrays that the task makes inside come from the lease, and none may be left at its end (PlaitError). PlanError
        for more than the limit, or for a device that the scheduler does not have.
        """
        if not isinstance(nbytes, int) or isinstance(nbytes, bool) or nbytes < 0:
            raise PlanError(f"a lease is of a whole number of bytes, at least 0, not {nbytes!r}")
        places = Places(self.devices)
        found = [place for place, name in enumerate(places.names) if name == str(device).lower()]
        if not found or (found[0] == 0 and places.host is None):
            raise PlanError(f"no device {device!r} to lease memory of; this scheduler has {', '.join(places.names)}")
        place = found[0]
        if self._closed:
            raise PlaitError("this scheduler is closed: take leases inside its `async with` block")
        return leased(self.dispatcher, place, places.names[place], nbytes, priority, on_gpu=place > 0)

    def forget(self, run: Run) -> None:
        """A run has ended."""
        del self._runs[run._state]
        self._grains[run.plan] = run._state.grain_ns
        if self._costs is not None and self._traced:
            learn(self._costs, run)
        if run._state.memory is not None and run._error is None:
            self._sizes[run.plan] = run._state.memory.sizes
        if run._error is not None and not run._observed:
            self._failed.add(run)

    def seen(self, run: Run) -> None:
        """Someone has heard of the run's end."""
        self._failed.discard(run)

    def _post(self, state: RunState) -> None:
        """Any thread: the run has news. One message to the loop carries all that gather until it is read."""
        self._mail.append(state)
        if not self._mail_sent:
            self._mail_sent = True
            self._token.run_sync_soon(self._deliver)

    def _crowd(self, crowded: bool) -> None:
        """Any thread: compute lanes began or ceased to serve side by side."""
        with contextlib.suppress(trio.RunFinishedError):  # a lane that was late to hear that we closed
            self._token.run_sync_soon(self._bound_blas, crowded)

    def _bound_blas(self, crowded: bool) -> None:
        """Bound BLAS while lanes are side by side, so that they do not fight over the cores.

        On the trio thread: threadpoolctl lets one thread alone set OpenBLAS's threads, the first that ever did.
        """
        if crowded and self._bound is None and not self._closed:
            self._bound = bounded_blas(max(1, usable_cores() // len(self._compute)))
            self._bound.__enter__()
        elif not crowded and self._bound is not None:
            bound, self._bound = self._bound, None
            bound.__exit__(None, None, None)

    def _deliver(self) -> None:
        self._mail_sent = False
        while self._mail:
            state = self._mail.popleft()
            state.mailed = False  # what is posted from here on is news again
            run = self._runs.get(state)
            if run is not None:
                run._news.set()

    async def _close(self) -> None:
        self._closed = True
        closed = trio.Event()
        with trio.CancelScope(shield=True):  # streams must be still before they are given back
            self.dispatcher.close(lambda: self._token.run_sync_soon(closed.set))
            await closed.wait()
        self._bound_blas(False)
        self.dispatcher.close_devices()
        self.observer.close()
        if self.dispatcher.memory is not None:
            self.dispatcher.memory.file.close()
        for stream in [*self._compute, *self._copy]:
            stream.close()

    def _raise_unseen(self) -> None:
        """An error that nobody awaited must not vanish with the scheduler."""
        for run in self._failed:
            if run._error is not None:
                raise run._error


def checked_on_error(on_error: str) -> str:
    """``on_error`` itself; PlanError if it is no known way to go on after a failure."""
    if on_error not in _ON_ERROR:
        raise PlanError(f"on_error must be one of {', '.join(map(repr, _ON_ERROR))}, not {on_error!r}")
    return on_error


def _checked_debug(debug: str | None) -> bool:
    if debug not in (None, "synchronous"):
        raise PlanError(f"debug must be 'synchronous' or None, not {debug!r}")
    return debug is not None
