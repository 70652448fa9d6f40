"""Host streams at work: each lane is a stream of the host device that serves ready items of the active runs.

A lane's work is one operation on its stream, which runs items until none is ready; so tiny items cost no
hand-over. One lane starts a run; others join when items turn out to be long enough to be worth a thread's wake-up.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from plait.devices import HostStream, usable_cores
from plait.scheduler.device_failure import device_lane_failed, forget_flight
from plait.scheduler.device_lanes import DeviceLanes
from plait.scheduler.kinds import COMPUTE, COPY, LOOP, ROLE_WORDS
from plait.scheduler.lane_failure import lane_failed
from plait.scheduler.memory.holding import prepared, value_for_caller
from plait.scheduler.seeing.nesting import CURRENT
from plait.scheduler.state import SKIPPED, RunState
from plait.scheduler.straight import run_straight
from plait.scheduler.watching import Watching, progress, watch

if TYPE_CHECKING:
    from plait.devices import GpuDevice
    from plait.scheduler.memory import Arbiter, Residency

COARSE_NS = 20_000  # an item this long pays for waking another thread
SLICE_NS = 2_000_000  # a run keeps a lane this long while another of its urgency waits


class Lane:
    """One host stream as the dispatcher sees it."""

    __slots__ = ("busy", "entered", "index", "kind", "position", "retired", "since_ns", "state", "stream")

    def __init__(self, index: int, kind: int, stream: HostStream) -> None:
        self.index = index
        self.kind = kind
        self.stream = stream
        self.busy = False  # at work, or asked to be
        self.entered = False  # at work
        self.retired = False
        self.since_ns = 0
        self.state: RunState | None = None  # the run it serves
        self.position = -1  # the item it is in; -1: the one under the cursor of its straight run


class Dispatcher:
    """Serves the runs of one scheduler on its host streams.

    ``post`` is called with a run that has news for the trio thread (an output, an async item, its end), and
    ``on_crowded`` when compute lanes begin or cease to serve side by side; both on any thread.
    """

    def __init__(
        self,
        compute: list[HostStream],
        copy: list[HostStream],
        post: Callable[[RunState], None],
        on_crowded: Callable[[bool], None],
    ) -> None:
        self.lanes = [Lane(index, COMPUTE, stream) for index, stream in enumerate(compute)]
        self.lanes += [Lane(len(compute) + index, COPY, stream) for index, stream in enumerate(copy)]
        self.host_lanes = len(self.lanes)
        self._post = post
        self._on_crowded = on_crowded
        # Guards the ready heaps and counts of all runs, and who serves them. A message to the trio thread for each
        # item would cost ten times what a tiny item does.
        self.lock = threading.Lock()
        self._queues: list[list[Any]] = [[], [], []]
        self.runs: set[RunState] = set()
        self._with_deadline = 0  # of the runs
        self._sequence = 0
        self._watching = Watching()
        self.serving = [0, 0, 0]  # per kind, the lanes that serve a run now
        self._crowded = False
        self._cores = usable_cores()
        self._devices: DeviceLanes | None = None
        self._closing: Callable[[], None] | None = None
        self.now_ns: Callable[[], int] = perf_counter_ns
        self.lanes_of_devices: type[DeviceLanes] = DeviceLanes
        self.ranges = False  # whether device items are named in the vendor's tools
        self.memory: Arbiter | None = None

    # ---- called from the trio thread --------------------------------------------------------------------------

    def add_devices(self, devices: list[GpuDevice], names: list[str]) -> None:
        """Lanes for devices, once, before a run needs them. The names of their streams are appended to ``names``."""
        lanes = [
            Lane(0, 3 * place + role, device.lane(f"{device.name}/{word}"))
            for place, device in enumerate(devices, 1)
            for role, word in enumerate(ROLE_WORDS)
        ]
        with self.lock:
            self._devices = self.lanes_of_devices(self, devices, names)
            self.lanes += lanes
            self._queues += [[] for _ in lanes]
            self.serving += [0] * len(lanes)

    def recycle(self, state: RunState) -> None:
        """Let the next run have what this one, which is over, needed of the devices."""
        if self._devices is not None:
            self._devices.recycle(state)

    def close_devices(self) -> None:
        """Give the devices' streams back; no lane may be at work."""
        if self._devices is not None:
            self._devices.close()

    def submit(self, state: RunState) -> None:
        """Start serving a run."""
        with self.lock:
            state.begin_ns = self.now_ns()
            state.vtime = min((other.vtime for other in self.runs), default=0.0)
            self.runs.add(state)
            self._with_deadline += state.deadline_ns is not None
            self.announce(state, joining=False)
            for other in self.runs:
                if other.straight and other.priority < state.priority:
                    other.attention = True
            self.after(state)

    def stop(self, state: RunState, reason: str) -> None:
        """Start nothing more of a run; what is in flight drains."""
        with self.lock:
            state.stop(reason)  # also before it is submitted
            self.after(state)
            self.settle_memory()

    def take_loop_items(self, state: RunState) -> tuple[list[int], list[str]]:
        """Async items to start now and outputs that became ready, for the trio thread."""
        with self.lock:
            taken: list[int] = []
            while state.prepared and (position := state.pop(LOOP)) >= 0:
                taken.append(position)
            self.settle_memory()
            outputs, state.outputs_done = state.outputs_done, []
            return taken, outputs

    def settle_loop_item(self, state: RunState, position: int, error: BaseException | None) -> None:
        """An async item ended."""
        dead: list[Any] = []
        with self.lock:
            state.ended(position, error, -1, dead)
            self.announce(state, joining=True)
            self.after(state)
            self.settle_memory()

    def abandon_loop_item(self, state: RunState, position: int) -> None:
        """An async item was cancelled: the run is ending."""
        with self.lock:
            state.active -= 1
            state.status[position] = SKIPPED
            state.stop("the run was cancelled")
            self.after(state)
            self.settle_memory()

    def is_over(self, state: RunState) -> bool:
        """Whether nothing of the run is in flight or will start."""
        with self.lock:
            return state not in self.runs

    def close(self, closed: Callable[[], None]) -> None:
        """Call ``closed`` once no lane is at work, on any thread; every run must be over."""
        with self.lock:
            self._closing = closed
            self._watching.ring()
            self._lane_idle()

    # ---- under the lock ---------------------------------------------------------------------------------------

    def announce(self, state: RunState, joining: bool) -> None:
        """Queue a run where it has work, and wake a lane where that pays."""
        for kind in state.lane_kinds:
            if not state.has_work(kind):
                continue
            if not state.queued[kind]:
                state.queued[kind] = True
                self._sequence += 1
                heappush(self._queues[kind], (-state.priority, state.turn(kind), self._sequence, state))
            if kind != COMPUTE or not joining or not self.serving[COMPUTE] or state.grain_ns >= COARSE_NS:
                self._wake(kind)
            elif self._watching.lane is None:
                self._watch_with_idle_lane()

    def _wake(self, kind: int) -> None:
        if kind == COMPUTE and self._watching.lane is not None:
            self._watching.ring()
            return
        for lane in self.lanes:
            if lane.kind == kind and not lane.busy:
                lane.busy = True
                self._start(lane)
                return

    def _start(self, lane: Lane) -> None:
        lane.stream.enqueue(self._lane_main, lane)
        if lane.stream.error is not None:  # no thread can be had, so it will never be called
            self._lane_failed(lane, lane.stream.error)

    def _watch_with_idle_lane(self) -> None:
        if self._cores == 1:
            return  # a watching lane would hold the only worker
        for lane in self.lanes:
            if lane.kind == COMPUTE and not lane.busy:
                lane.busy = lane.retired = True
                self._watching.lane = lane
                self._start(lane)
                return

    def _worth_watching(self, lane: Lane) -> bool:
        return self._watching.lane is None and self._cores > 1 and not lane.stream.contended and bool(progress(self))

    def _lane_idle(self) -> None:
        if not any(lane.entered for lane in self.lanes if lane.kind == COMPUTE):
            self.set_crowded(False)
        if self._closing is not None and not any(lane.entered for lane in self.lanes):
            closing, self._closing = self._closing, None
            closing()

    def after(self, state: RunState) -> None:
        """Tell the trio thread what it must know, once per batch."""
        if state.over and state in self.runs:
            self.discard(state)
        elif state.has_news and not state.mailed:
            state.mailed = True
            self._post(state)

    def discard(self, state: RunState) -> None:
        """The run is over, which the trio thread hears."""
        if state in self.runs:
            state.end_ns = self.now_ns()
            self.runs.discard(state)
            self._with_deadline -= state.deadline_ns is not None
        if not state.mailed:
            state.mailed = True
            self._post(state)

    def forget_flight(self, state: RunState) -> None:
        """Nothing of the run is waited for any more: a device is asked to come to its end instead."""
        state.active, state.owned, state.preparing = 0, False, False
        if self._devices is not None and state.flight is not None:
            forget_flight(self._devices, state)

    def device_name(self, place: int) -> str:
        """The name of the device in that place."""
        return "?" if self._devices is None else self._devices.devices[place - 1].name

    def _pick(self, kind: int) -> RunState | None:
        """The run to serve next: the most urgent, and among equals the one whose turn it is."""
        queue = self._queues[kind]
        if self._with_deadline:  # what has become ready since it was queued may be more urgent than what was
            queue[:] = [(urgency, state.turn(kind), number, state) for urgency, _, number, state in queue]
            heapify(queue)
        while queue:
            urgency, turn, sequence, state = queue[0]
            if not state.has_work(kind):
                heappop(queue)
                state.queued[kind] = False
            elif turn < state.turn(kind):
                heapreplace(queue, (urgency, state.turn(kind), sequence, state))
            else:
                return state  # type: ignore[no-any-return]
        return None

    def should_yield(self, lane: Lane, state: RunState, since_ns: int) -> bool:
        """Whether another run should have this lane now, or another stream its worker."""
        queue = self._queues[lane.kind]
        alone = not queue or (len(queue) == 1 and queue[0][3] is state)
        if alone and not lane.stream.contended:
            return False
        return (not alone and queue[0][0] < -state.priority) or perf_counter_ns() - since_ns > SLICE_NS

    # ---- on a lane's thread -----------------------------------------------------------------------------------

    def _lane_main(self, lane: Lane) -> None:
        with self.lock:
            try:
                self._serve_lane(lane)
            except BaseException as error:  # whatever it is: nobody else would hear of it, and the runs would hang
                self._lane_failed(lane, error)

    def _lane_failed(self, lane: Lane, error: BaseException) -> None:
        """The runs that the lane could serve fail, and it is as if it had come to its end."""
        if self._watching.lane is lane:
            self._watching.end()
        lane.busy = lane.entered = lane.retired = False
        lane_failed(self, lane, error)
        if self._devices is not None and lane.kind > LOOP:
            device_lane_failed(self._devices, lane, error)
        lane.since_ns, lane.state, lane.position = 0, None, -1
        for kind in range(len(self.serving)):
            self.serving[kind] = sum(each.kind == kind and each.state is not None for each in self.lanes)
        self._lane_idle()

    def _serve_lane(self, lane: Lane) -> None:
        kind = lane.kind
        entered = perf_counter_ns()
        lane.entered = True
        while True:
            if lane.retired:
                watch(self, self._watching, lane)
            if lane.stream.contended and perf_counter_ns() - entered > SLICE_NS:
                lane.entered = False
                lane.stream.enqueue(self._lane_main, lane)  # behind those that wait for a worker
                return
            state = self._pick(kind)
            if state is None:
                if kind == COMPUTE and self._worth_watching(lane):
                    lane.retired = True  # what the other lane is at may free several
                    continue
                lane.busy = lane.entered = False
                self._lane_idle()
                return
            lane.state, lane.position = state, -1
            self.serving[kind] += 1
            if self.serving[COMPUTE] > 1:
                self.set_crowded(True)
            began = perf_counter_ns()
            if not state.prepared:
                self._prepare(lane, state)
            if state.memory is not None and state.memory.moves[kind]:
                self._serve_moves(lane, state, state.memory)
            serve = self._serve_straight if state.straight else self._serve_counted
            if self._devices is not None and kind > LOOP:
                serve = self._devices.serve
            context = state.context.copy()
            context.run(CURRENT.set, (state, lane))
            context.run(serve, lane, state)
            lane.since_ns = 0
            lane.state = None
            state.vtime += perf_counter_ns() - began
            self.serving[kind] -= 1
            self.announce(state, joining=False)
            self.after(state)
            self.settle_memory()

    def set_crowded(self, crowded: bool) -> None:
        """Say when lanes begin to serve side by side, and when one has been left alone."""
        if crowded != self._crowded:
            self._crowded = crowded
            self._on_crowded(crowded)

    def _serve_straight(self, lane: Lane, state: RunState) -> None:
        state.owned = True
        state.attention = state.stopping
        try:
            if self._watching.lane is None and not state.plan.chain:
                self._watch_with_idle_lane()
            self._run_straight(lane, state)
        finally:
            state.owned = False

    def _run_straight(self, lane: Lane, state: RunState) -> None:
        count, ends = len(state.plan.calls), state.plan.output_ends
        began = looked = perf_counter_ns()
        chunk = 8
        while state.straight and state.cursor < count and not state.stopping:
            start = state.cursor
            end = min(count, start + chunk)
            following = bisect_right(ends, start)
            if following < len(ends):
                end = min(end, ends[following])
            self.lock.release()
            try:
                error = run_straight(state, start, end, lane.index)
            finally:
                self.lock.acquire()
                if not state.straight and state.promoted_at < count:
                    lane.position = state.promoted_at
            position = state.cursor
            if not state.straight:
                self._resume(lane, state, position, error)
                break
            if error is not None:
                dead: list[Any] = []
                state.fail(position, error, lane.index, dead)
                self.drop(dead)
                break
            now = perf_counter_ns()
            state.grain_ns = (now - looked) // max(1, position - start)
            if following < len(ends) and position == ends[following]:
                state.pass_outputs(position)
            if state.grain_ns > COARSE_NS and position < count and not state.plan.chain:
                state.owned = False
                state.promote()
                break
            if self.should_yield(lane, state, began):
                break
            if state.outputs_done:
                self.after(state)
            state.attention = state.stopping
            chunk = min(256, 2 * chunk)
            looked = now

    def _resume(self, lane: Lane, state: RunState, position: int, error: BaseException | None) -> None:
        """Another lane promoted the run while this one was at ``position``."""
        dead: list[Any] = []
        if error is None:
            state.resume(position, dead)
        else:
            state.fail(position, error, lane.index, dead)
        lane.position = -1
        self.drop(dead)

    def drop(self, dead: list[Any]) -> None:
        """Let go of values without the lock: a destructor is user code."""
        if dead:
            self.lock.release()
            try:
                dead.clear()
            finally:
                self.lock.acquire()

    def look_again(self, state: RunState) -> None:
        """Memory has changed for a run: lanes and the trio thread look at what it has to do."""
        if state in self.runs:
            self.announce(state, joining=False)
            self.after(state)

    def settle_memory(self) -> None:
        """After what may have freed memory or used it: let those that wait go on."""
        memory = self.memory
        if memory is not None and memory.unsettled:
            memory.settle()
            self.drop_moved()

    def drop_moved(self) -> None:
        """Let go of what has made room, before what the room is for is made."""
        memory = self.memory
        if memory is not None and memory.dead:
            dead, memory.dead = memory.dead, []
            self.drop(dead)

    def hand_over(self, state: RunState, slot: int) -> Any:
        """A value for the caller, whose memory it is from then on."""
        assert state.memory is not None
        with self.lock:
            value = value_for_caller(state.memory, slot)
            self.settle_memory()
        return value

    def undelivered(self, state: RunState, error: Exception) -> None:
        """An output is there and could not be handed over."""
        with self.lock:
            state.errors.append((-1, error, -1))
            if not state.isolate:
                state.stop("an output could not be handed over")
            self.after(state)
            self.settle_memory()

    def give_memory_back(self, state: RunState) -> None:
        """A run has ended, and its values are let go of."""
        if self.memory is not None:
            with self.lock:
                self.memory.close(state)
                self.settle_memory()

    def _serve_moves(self, lane: Lane, state: RunState, memory: Residency) -> None:
        """Carry out what the run has to move for this kind of lane."""
        assert self.memory is not None
        moves, arbiter = memory.moves[lane.kind], self.memory
        while moves:
            move = moves.popleft()
            self.lock.release()
            error: BaseException | None = None
            try:
                queue = None if lane.kind <= LOOP or self._devices is None else self._devices.move_queue(lane)
                move.carry_out(state.values, arbiter.file, queue)
            except BaseException as raised:  # a full disk, a lost device: the run hears of it
                error = raised
            finally:
                self.lock.acquire()
            arbiter.moves.ended(move, error)
            error = None
            self.settle_memory()
            self.announce(state, joining=True)
            self.after(state)

    def _prepare(self, lane: Lane, state: RunState) -> None:
        state.preparing = True
        self.lock.release()
        try:
            error = state.prepare()
        finally:
            self.lock.acquire()
            state.preparing = False
        state.prepared = True
        if state.memory is not None:
            prepared(state.memory)
        if error is None:
            state.pass_unwritten_outputs()
        else:
            state.errors.append((-1, error, lane.index))
            state.stop("its buffers could not be allocated")

    def _serve_counted(self, lane: Lane, state: RunState) -> None:
        plan, values, kind, lock = state.plan, state.values, lane.kind, self.lock
        calls, getters, outs = plan.calls, plan.getters, plan.outs
        ready, others = state.ready[kind], [state.ready[each] for each in state.lane_kinds if each != kind]
        dead: list[Any] = []
        began = perf_counter_ns()
        served = 0
        while (position := state.pop(kind)) >= 0:
            error = None
            lane.position = position
            if state.memory is not None:
                self.drop_moved()
            lane.since_ns = started = perf_counter_ns()
            lock.release()
            try:
                values[outs[position]] = calls[position](*getters[position](values))
            except BaseException as raised:
                error = raised
            finally:
                finished = perf_counter_ns()
                lock.acquire()
            served += 1
            if state.traced:
                state.started[position] = started
                state.finished[position] = finished
                state.lanes[position] = lane.index
                if error is None:
                    state.measure_slot(outs[position])
            state.grain_ns += (finished - started - state.grain_ns) >> 3
            state.ended(position, error, lane.index, dead)
            error = None
            if state.memory is not None:
                self.settle_memory()
                if state.memory.moves[kind]:
                    self._serve_moves(lane, state, state.memory)
            if len(ready) > 1 or any(others):
                self.announce(state, joining=True)
            self.drop(dead)
            if state.has_news:
                self.after(state)
            if self.should_yield(lane, state, began):
                break
            if served & 31 == 0 and state.grain_ns < COARSE_NS // 4 and state.demote():
                break
            if served & 31 == 0 and kind == COMPUTE and self.serving[COMPUTE] > 1 and state.grain_ns < COARSE_NS // 2:
                lane.retired = self._watching.lane is None
                break
