"""The dispatcher in virtual time: the same state machine, served by one loop on the trio thread.

Lanes, queues and fairness are the real dispatcher's; a lane that serves an item asks virtual time to come back when the
item has ended, instead of running it on a thread. Nothing here depends on what real time it is.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from heapq import heappush
from typing import Any

import trio
from plait.devices.sim import FailedItem, Simulation
from plait.graph import BUFFER
from plait.scheduler.deferred import Cell, Sized
from plait.scheduler.estimates import Estimates
from plait.scheduler.kinds import COMPUTE, COPY, LOOP
from plait.scheduler.lane_failure import LaneFailed, fail_runs, let_go
from plait.scheduler.lanes import Dispatcher, Lane
from plait.scheduler.machine_costs import Costs
from plait.scheduler.memory.move import Move
from plait.scheduler.memory.residency import Residency
from plait.scheduler.state import RunState
from plait.scheduler.virtual_clock import Drive
from plait.scheduler.virtual_devices import VirtualDeviceLanes


class VirtualDispatcher(Dispatcher):
    """Serves the runs of one scheduler on a simulated machine. All of it happens on the trio thread."""

    def __init__(
        self,
        simulation: Simulation,
        compute: list[Any],
        copy: list[Any],
        post: Callable[[RunState], None],
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(compute, copy, self._posted, lambda crowded: None)
        self.simulation = simulation
        self.dry = simulation.machine.dry
        self._tell = post
        self._time = simulation.time
        self._drive = Drive(simulation, nursery, self._arrive, self._time_failed)
        self._arrivals: list[tuple[int, int, Callable[[], None]]] = []
        self.now_ns = self._drive.now_ns
        self.lanes_of_devices = VirtualDeviceLanes
        self._costs = Costs(simulation.machine)
        self._estimates: dict[RunState, Estimates] = {}
        self._coming: set[RunState] = set()
        self._lanes_by_kind: dict[int, list[Lane]] = {}
        for lane in self.lanes:
            lane.busy = lane.kind == COMPUTE and lane.index >= simulation.host.model.workers

    def estimates(self, state: RunState) -> Estimates:
        """What is known beforehand of a run's items and values."""
        return self._estimates[state]

    # ---- what tasks ask for, taken in the order of runs and items ----------------------------------------------

    def submit(self, state: RunState) -> None:
        """Start serving a run, once all tasks of this moment have said what they want."""
        self._coming.add(state)
        self._at_arrival(state, -1, functools.partial(self._submit, state))

    def estimate(self, state: RunState) -> None:
        """Ask for the costs of a run's items, before it is submitted: what the caller's function raises comes out."""
        state.simulated_cores = self.simulation.host.model.workers
        self._estimates[state] = estimates = Estimates(state.plan, self._costs, state.values)
        for fault in self.simulation.machine.faults:
            if isinstance(fault, FailedItem) and fault.item in state.plan.program.index_of:
                estimates.plant(state.plan, fault)
        if state.flight is not None:  # any item may fail when it runs, long after those behind it were enqueued
            guarded = bytearray(b"\1") * len(state.plan.calls)
            state.flight.part = dataclasses.replace(state.flight.part, guarded=guarded)

    def _submit(self, state: RunState) -> None:
        self._coming.discard(state)
        super().submit(state)

    def is_over(self, state: RunState) -> bool:
        """Whether nothing of the run is in flight or will start."""
        return state not in self._coming and super().is_over(state)

    def settle_loop_item(self, state: RunState, position: int, error: BaseException | None) -> None:
        """An async item ended."""
        self._at_arrival(state, position, functools.partial(super().settle_loop_item, state, position, error))

    def stop(self, state: RunState, reason: str) -> None:
        """Start nothing more of a run; what is in flight drains."""
        super().stop(state, reason)
        self._drive.wake()

    def _at_arrival(self, state: RunState, position: int, call: Callable[[], None]) -> None:
        self._arrivals.append((state.serial, position, call))
        self._drive.wake()

    def _arrive(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        for _, _, call in sorted(arrivals, key=lambda arrival: arrival[:2]):
            call()

    def _posted(self, state: RunState) -> None:
        self._drive.news = True
        self._tell(state)

    def recycle(self, state: RunState) -> None:
        """The run is over."""
        super().recycle(state)
        self._estimates.pop(state, None)

    def should_yield(self, lane: Lane, state: RunState, since_ns: int) -> bool:
        """After every item: starting one takes time, in which something more urgent may become ready."""
        return True

    def announce(self, state: RunState, joining: bool) -> None:
        """Queue a run where it has work, and wake a lane there."""
        if not state.prepared or state.preparing:
            super().announce(state, joining)
            return
        if state.fresh is None:
            state.fresh = list(range(len(state.ready)))
        kinds, state.fresh = [COMPUTE, COPY, *state.fresh], []
        for kind in kinds:
            if kind == LOOP and self.dry:
                self._serve_loop(state)
            if kind == LOOP or not state.has_work(kind):
                continue
            if not state.queued[kind]:
                state.queued[kind] = True
                self._sequence += 1
                heappush(self._queues[kind], (-state.priority, state.turn(kind), self._sequence, state))
            self._wake(kind)

    def _wake(self, kind: int) -> None:
        found = self._lanes_by_kind.get(kind)
        if found is None:
            found = self._lanes_by_kind[kind] = [lane for lane in self.lanes if lane.kind == kind]
        for lane in found:
            if not lane.busy:
                lane.busy = True
                lane.stream.enqueue(self._lane_main, lane)
                return

    def drop(self, dead: list[Any]) -> None:
        """Values nobody needs any more: who uses one of a device from here on will be told."""
        if dead and not self.dry:
            self.lock.release()  # what frees a value may be heard of on the spot
            try:
                for value in dead:
                    if isinstance(value, Cell):
                        value.free()
            finally:
                self.lock.acquire()
        dead.clear()

    # ---- serving ----------------------------------------------------------------------------------------------

    def _serve_lane(self, lane: Lane) -> None:
        while (state := self._pick(lane.kind)) is not None:
            lane.state = state
            if not state.prepared:
                self._prepare(lane, state)
            if state.memory is not None and state.memory.moves[lane.kind]:
                self._serve_moves(lane, state, state.memory)
            busy = self._serve_device(lane, state) if lane.kind > LOOP else self._serve_host(lane, state)
            self.announce(state, joining=False)
            self.after(state)
            self.settle_memory()
            lane.state = None
            if busy:
                return
        lane.busy = False

    def _lane_failed(self, lane: Lane, error: BaseException) -> None:
        """As of a real lane; what interrupts the whole program is none of the lane's."""
        super()._lane_failed(lane, error)
        if not isinstance(error, Exception):
            raise error

    def _time_failed(self, error: BaseException) -> None:
        """What happens in virtual time failed outside of any lane: nothing of any run will be heard of any more."""
        failure = LaneFailed("of the simulated machine", self.simulation.machine.name, None, error)
        with self.lock:
            runs = [*self.runs, *self._coming]
            self._coming.clear()
            fail_runs(self, runs, failure)
            for state in runs:
                let_go(self, state, error)

    def _serve_device(self, lane: Lane, state: RunState) -> bool:
        """Enqueue one item; whether the lane is busy with that for a while."""
        assert self._devices is not None
        active = state.active
        state.context.copy().run(self._devices.serve, lane, state)
        launch_ns = self.simulation.launch_ns(lane.kind // 3)
        if not launch_ns or state.active == active:
            return False
        self._time.at(self._time.now_ns + launch_ns, self._lane_main, lane)
        return True

    def _serve_moves(self, lane: Lane, state: RunState, memory: Residency) -> None:
        """Start what the run has to move; the lane goes on meanwhile, as the copy engine does the work."""
        devices, moves = self._devices, memory.moves[lane.kind]
        assert isinstance(devices, VirtualDeviceLanes)
        while moves:
            devices.move(lane, state, moves.popleft(), self._moved)

    def _moved(self, state: RunState, move: Move, error: BaseException | None) -> None:
        with self.lock:
            assert self.memory is not None
            self.memory.moves.ended(move, error)
            self.settle_memory()
            self.announce(state, joining=True)
            self.after(state)

    def _serve_host(self, lane: Lane, state: RunState) -> bool:
        position = lane.position = state.pop(lane.kind)
        if position < 0:
            return False
        now = self._time.now_ns
        took_ns = self.estimates(state).took_ns[position]
        call: Callable[[], Any] | None = None
        error: BaseException | None = None
        if not self.dry:
            call, error = self._bound(state, position, self.simulation.early())
        state.vtime += took_ns
        self._time.at(now + took_ns, self._ended, lane, state, position, now, call, error)
        lane.position = -1
        return True

    def _bound(
        self, state: RunState, position: int, early: bool
    ) -> tuple[Callable[[], Any] | None, BaseException | None]:
        """The item's call with the arguments of this moment; if it is to be early, what gives its result."""
        plan = state.plan
        try:
            args = plan.getters[position](state.values)
            call = functools.partial(state.context.copy().run, plan.calls[position], *args)
            if not early:
                return call, None
            result = call()
        except BaseException as error:  # whatever it is, it is the item's failure
            return None, error
        return (lambda: result), None

    def _serve_loop(self, state: RunState) -> None:
        """In a dry run async items are not awaited: each takes its time, beside all others."""
        while (position := state.pop(LOOP)) >= 0:
            now = self._time.now_ns
            self._time.at(now + self.estimates(state).took_ns[position], self._loop_ended, state, position, now)

    def _loop_ended(self, state: RunState, position: int, started: int) -> None:
        if state not in self.runs:
            return  # it was let go of
        error = self.estimates(state).planted.get(position) or self._sized(state, position)
        if state.traced:
            state.started[position], state.finished[position] = started, self._time.now_ns
            state.lanes[position] = self.host_lanes
        super().settle_loop_item(state, position, error)

    def _ended(
        self,
        lane: Lane,
        state: RunState,
        position: int,
        started: int,
        call: Callable[[], Any] | None,
        error: BaseException | None,
    ) -> None:
        """An item of the host has had its time: it is called now, and what waits for it may follow."""
        if error is None:
            error = self.estimates(state).planted.get(position)
        if error is None:
            error = self._sized(state, position) if call is None else self._called(state, position, call)
        with self.lock:
            if state in self.runs:  # else it was let go of
                lane.state, lane.position = state, position
                try:
                    self._settle(lane, state, position, started, error)
                except BaseException as raised:  # as in ``_lane_main``
                    self._lane_failed(lane, raised)
                    return
                lane.state, lane.position = None, -1
        self._lane_main(lane)

    def _settle(self, lane: Lane, state: RunState, position: int, started: int, error: BaseException | None) -> None:
        dead: list[Any] = []
        if state.traced:
            state.started[position], state.finished[position] = started, self._time.now_ns
            state.lanes[position] = lane.index
            if error is None:
                for buffer in state.plan.item(position).outputs:
                    state.measure_slot(buffer.index)
        state.ended(position, error, lane.index, dead)
        self.announce(state, joining=True)
        self.after(state)
        self.drop(dead)
        self.settle_memory()

    @staticmethod
    def _called(state: RunState, position: int, call: Callable[[], Any]) -> BaseException | None:
        try:
            state.values[state.plan.outs[position]] = call()
        except BaseException as error:  # whatever it is, it is the item's failure
            return error
        return None

    def _sized(self, state: RunState, position: int) -> BaseException | None:
        item = state.plan.item(position)
        first = getattr(item, "first_result", -1)
        if first < 0:
            return None
        nbytes, memory = self.estimates(state).nbytes, self.simulation.host.memory
        try:
            for slot in range(first, first + item.options.outputs):
                state.values[slot] = Sized(memory, nbytes[slot])
        except Exception as error:
            return error
        return None

    def _prepare(self, lane: Lane, state: RunState) -> None:
        if not self.dry:
            super()._prepare(lane, state)
            return
        for buffer in state.plan.program.declared:
            if buffer.kind == BUFFER and buffer.index in state.plan.host_made:
                state.values[buffer.index] = Sized(self.simulation.host.memory, buffer.nbytes or 0)
        state.prepared = True
        state.pass_unwritten_outputs()
