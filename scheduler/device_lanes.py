"""Device lanes at work: threads that enqueue ready items into a device's streams and never wait for them.

Each device has three: one launches and allocates, one copies in, one copies out. An item is enqueued as soon as its
device predecessors are, behind waits for their events; the older of two waits for one stream is skipped, as in
CUDASTF's event lists. What the host must hear of is followed through the device's tracker.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from heapq import heappop
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from plait.devices import LaunchQueue, Mark
from plait.errors import DeviceLost, OutOfMemory
from plait.scheduler.clock import Clock
from plait.scheduler.copy_out import serve_out
from plait.scheduler.crossing import owned, transferred
from plait.scheduler.device_failure import hearing_failed
from plait.scheduler.device_plan import stream_name, transfer_call
from plait.scheduler.expand import Transfer
from plait.scheduler.holders import with_holders
from plait.scheduler.kinds import LAUNCH, LOOP, OUT
from plait.scheduler.shared_constants import SharedConstants, is_shareable
from plait.scheduler.tail import WINDOW, Tail

if TYPE_CHECKING:
    from plait.devices import GpuDevice
    from plait.scheduler.lanes import Dispatcher, Lane
    from plait.scheduler.state import RunState

FOLLOWED = 16  # so many items of a stream end with one message


class DeviceLanes:
    """The streams of a scheduler's devices and what is in flight in them. State is guarded by the dispatcher's lock."""

    def __init__(self, dispatcher: Dispatcher, devices: list[GpuDevice], names: list[str]) -> None:
        self.devices = devices
        self.dispatcher = dispatcher
        self.lock = dispatcher.lock
        self._names = names
        self.tails: dict[tuple[int, int, int, int], Tail] = {}
        self.numbers = [0] * (len(devices) + 1)  # per place: items enqueued so far, over all its streams
        self._keys = itertools.count()
        self.clocks: dict[int, Clock] = {}
        self._constants = [SharedConstants() for _ in range(len(devices) + 1)]
        self._move_queues: dict[int, LaunchQueue] = {}  # by kind of lane

    def serve(self, lane: Lane, state: RunState) -> None:
        """Enqueue what is ready of a run for this lane; with the lock held."""
        place, role = divmod(lane.kind, 3)
        if state.traced:
            self._set_clock(place)
        if role == OUT:
            self._serve_out(lane, state, place)
        else:
            self._serve_launch(lane, state, place, role)

    def recycle(self, state: RunState) -> None:
        """A run is over: its events are reached, and the next run may have them."""
        if state.flight is None or state.traced:
            return
        kinds, events = state.plan.kinds, state.flight.event
        for place, device in enumerate(self.devices, 1):
            device.give_events(
                event for kind, event in zip(kinds, events, strict=True) if kind // 3 == place and event is not None
            )
        state.flight.event = []

    def close(self) -> None:
        """Give the driver's streams back; every run must be over."""
        for tail in self.tails.values():
            tail.queue.device.give_back(tail.queue)
        self.tails.clear()
        for queue in self._move_queues.values():
            queue.device.give_back(queue)
        self._move_queues.clear()

    def _serve_out(self, lane: Lane, state: RunState, place: int) -> None:
        serve_out(self, lane, state, place)

    def move_queue(self, lane: Lane) -> LaunchQueue:
        """The stream of a device's moves to make room or to bring back; without the lock, on the lane's own thread."""
        place, role = divmod(lane.kind, 3)
        queue = self._move_queues.get(lane.kind)
        device = self.devices[place - 1]
        if device.error is not None:
            raise device.error
        if queue is None:
            name = stream_name(device.name, role, 0)
            queue = self._move_queues[lane.kind] = device.borrow(priority=0, kind="copy", name=name)
        return queue

    # ---- enqueueing -------------------------------------------------------------------------------------------

    def _serve_launch(self, lane: Lane, state: RunState, place: int, role: int) -> None:
        flight, ready = state.flight, state.ready[lane.kind]
        assert flight is not None, "a device item in a plan without devices"
        late = flight.part.late
        told = state.fresh is not None  # then announcing looks at what has become ready, and at nothing else
        others = [] if told else [state.ready[kind] for kind in (*state.lane_kinds, LOOP) if kind != lane.kind]
        enqueue = self._enqueue_named if self.dispatcher.ranges else self._enqueue
        untold: dict[int, tuple[Tail, int]] = {}
        dead: list[Any] = []
        began = perf_counter_ns()
        while (position := state.peek(lane.kind)) >= 0:
            tail = self.tail_for(state, place, role, position)
            if tail is None:
                break  # the device is lost, and the item has failed of it
            if state.peek(lane.kind) != position:
                continue  # its stream had to be made, and meanwhile something more urgent became ready
            if tail.in_flight >= WINDOW:
                tail.parked.append((state, heappop(ready)))
                continue
            if flight.hold_back(position, tail.key):
                heappop(ready)
                continue
            state.pop(lane.kind)
            number = self.numbers[place] = self.numbers[place] + 1
            flight.enters(position, tail.key, tail.index, number)
            tail.in_flight += 1
            waits = self.waits_for(state, position, tail)
            tail.busy = state, position
            flight.release_next(tail.key)
            if state.memory is not None:
                self.dispatcher.drop_moved()
            self.lock.release()
            event, error = None, None
            try:
                event = enqueue(state, position, tail, waits)
            except BaseException as raised:  # whatever it is, it is the item's failure
                error = raised
            finally:
                self.lock.acquire()
            if isinstance(error, OutOfMemory):
                error = with_holders(error, tail.queue.device, place, self.dispatcher.runs)
            tail.busy = None, -1
            if tail.lost:
                flight.lost([tail.key], error or tail.queue.device.error or DeviceLost("the device was lost"), dead)
            elif error is not None:
                self._failed(state, position, tail, error)
            else:
                if state.memory is not None:
                    state.memory.produced(position)
                flight.enqueued(position, event, dead)
                if state.synchronous:
                    tail.in_flight -= flight.reached(tail.key, position, dead)
            if dead:
                self.dispatcher.drop(dead)
            failed, error = error is not None, None  # its traceback holds values, and the run may end before this does
            if not tail.lost and (not state.synchronous or failed):
                untold[tail.key] = tail, position
                heard = late[position] or state.memory is not None  # its bytes are free as soon as it is known to end
                if heard or failed or tail.in_flight % FOLLOWED == 0:
                    del untold[tail.key]
                    self.follow(state, tail, position)
            if told or any(others):
                self.dispatcher.announce(state, joining=False)
            if state.outputs_done or state.stopping or state.synchronous:
                self.dispatcher.after(state)
            if state.memory is not None:
                self.dispatcher.settle_memory()
            if self.dispatcher.should_yield(lane, state, began):
                break
        for tail, position in untold.values():
            self.follow(state, tail, position)

    def tail_for(self, state: RunState, place: int, role: int, position: int) -> Tail | None:
        """The stream of an item, made when first needed; None once the device is lost and the item has failed."""
        device = self.devices[place - 1]
        part = state.plan.on_device
        assert part is not None
        priority = state.priority + part.priorities[position]
        lane, level = part.lanes[position], device.level(priority)
        tail = self.tails.get((place, role, lane, level))
        if device.error is None and tail is not None:
            return tail
        self.lock.release()
        error: BaseException | None = None
        try:
            if device.error is not None:
                raise device.error
            name = stream_name(device.name, role, lane)
            queue = device.borrow(priority=priority, kind="compute" if role == LAUNCH else "copy", name=name)
        except Exception as raised:
            error = raised
        finally:
            self.lock.acquire()
        if error is None:
            if queue.name not in self._names:
                self._names.append(queue.name)
            tail = Tail(queue, next(self._keys), self._names.index(queue.name))
            self.tails[place, role, lane, level] = tail
            return tail
        dead: list[Any] = []
        kind = 3 * place + role
        while (failed := state.pop(kind)) >= 0:
            state.active -= 1
            state.fail(failed, error, -1, dead)
        self.dispatcher.drop(dead)
        return None

    def waits_for(self, state: RunState, position: int, tail: Tail) -> list[Any]:
        """The driver events to wait for: of each other stream the newest that this one is not behind already."""
        flight = state.flight
        assert flight is not None
        newest: dict[int, int] = {}
        for source in flight.part.before[position]:
            stream, number = flight.stream[source], flight.number[source]
            if stream != tail.key and number > max(tail.seen.get(stream, 0), newest.get(stream, 0)):
                newest[stream] = number
        events = [
            flight.event[source]
            for source in flight.part.before[position]
            if newest.get(flight.stream[source]) == flight.number[source] and flight.event[source] is not None
        ]
        tail.seen.update(newest)
        if tail.key not in flight.joined:
            flight.joined.add(tail.key)
            events = [*state.joins, *events]
        return events

    def _enqueue(self, state: RunState, position: int, tail: Tail, waits: list[Any]) -> Any:
        """Without the lock: the item itself, between its waits and its event."""
        plan, values, queue = state.plan, state.values, tail.queue
        flight = state.flight
        assert flight is not None
        traced, call = state.traced, plan.calls[position]
        with queue.current("an item"):
            for event in waits:
                queue.driver.wait_event(event)
            start = queue.record_here(True) if traced else None
            if call is transfer_call:
                item = plan.item(position)
                assert isinstance(item, Transfer)
                place = item.target
                shared = self._constants[place] if state.memory is None and is_shareable(item) else None
                found = None if shared is None else shared.find(queue, values[item.source_slot])
                values[item.target_slot] = transferred(queue, item, values) if found is None else found
                if shared is not None and found is None:
                    shared.add(queue, values[item.source_slot], values[item.target_slot])
            else:
                args = plan.getters[position](values)
                try:
                    values[plan.outs[position]] = call(*args)
                    for slot in flight.part.local_made[position]:
                        if not owned(values[slot], args):
                            flight.shared.add(slot)
                finally:
                    args = ()  # an error that someone keeps would keep them, by this frame
            if state.synchronous:
                queue.driver.synchronize()
            if not traced:
                return queue.record_here(False) if flight.part.records[position] else None
            event = queue.record_here(True)
            state.enqueued[position] = self.dispatcher.now_ns()
            state.stamps[position] = start, event
            state.measure_slot(plan.outs[position])
            return event

    def _enqueue_named(self, state: RunState, position: int, tail: Tail, waits: list[Any]) -> Any:
        with tail.queue.named(state.plan.item(position).name):
            return self._enqueue(state, position, tail, waits)

    # ---- what the host hears ----------------------------------------------------------------------------------

    def follow(self, state: RunState, tail: Tail, position: int) -> None:
        """With the lock held, which is let go: hear when the item, and so all before it in its stream, has ended."""
        flight = state.flight
        assert flight is not None
        event = flight.event[position]
        self.lock.release()
        mark = Mark()
        mark.subscribe(functools.partial(self._reached, state, tail, position, mark))
        try:
            if event is None:
                event = flight.event[position] = tail.queue.record()
            tail.queue.device.tracker.follow(tail.queue.pointer, event, mark)
        except BaseException as error:
            mark.settle(error)
        finally:
            self.lock.acquire()

    def _reached(self, state: RunState, tail: Tail, position: int, mark: Mark) -> None:
        """Callback of a mark, on the tracker's thread."""
        with self.lock:
            try:
                self._hear(state, tail, position, mark)
            except BaseException as error:  # whatever it is: the tracker has no use for it, and the runs would hang
                hearing_failed(self, tail, error)

    def _hear(self, state: RunState, tail: Tail, position: int, mark: Mark) -> None:
        dead: list[Any] = []
        flight = state.flight
        assert flight is not None
        if mark.error is None:
            if state.traced:
                with contextlib.suppress(Exception):  # a device that was lost meanwhile keeps no times
                    self._stamp(state, tail, position)
            tail.in_flight -= flight.reached(tail.key, position, dead)
            flight.release_next(tail.key)
            self.unpark(tail)
        else:
            self.lose(tail, mark.error)
        if state in self.dispatcher.runs:  # else it has ended without what was followed, of a lost device
            self.dispatcher.announce(state, joining=True)
            self.dispatcher.after(state)
        self.dispatcher.settle_memory()
        self.dispatcher.drop(dead)

    def _failed(self, state: RunState, position: int, tail: Tail, error: BaseException) -> None:
        """An item could not be enqueued. Part of it may be running, so it ends when the stream has passed it."""
        flight = state.flight
        assert flight is not None
        flight.failing[position] = error
        if isinstance(error, DeviceLost):
            self.lose(tail, error)
        elif not state.isolate:
            state.stop("an item failed")

    def lose(self, tail: Tail, error: BaseException) -> None:
        """Every run loses what it has in flight on the stream's device; with the lock held."""
        gone = [tail]
        if not tail.lost:
            device = tail.queue.device
            device.noted(error)
            if self.dispatcher.memory is not None:
                self.dispatcher.memory.lose(self.devices.index(device) + 1)
            keys = [key for key, other in self.tails.items() if other.queue.device is device]
            gone += [self.tails.pop(key) for key in keys]
        dead: list[Any] = []
        for each in gone:
            each.lost = True
            self.unpark(each)
        for state in sorted(self.dispatcher.runs, key=lambda run: run.serial):
            if state.flight is not None:
                streams = [each.key for each in gone]
                for stream in streams:
                    state.flight.release_all(stream)
                state.flight.lost(streams, error, dead, [each.busy[1] for each in gone if each.busy[0] is state])
                self.dispatcher.announce(state, joining=False)
                self.dispatcher.after(state)
        self.dispatcher.drop(dead)
        self.dispatcher.settle_memory()

    def unpark(self, tail: Tail) -> None:
        parked, tail.parked = tail.parked, []
        for state, position in parked:
            state.make_ready(position)
            self.dispatcher.announce(state, joining=False)

    # ---- times ------------------------------------------------------------------------------------------------

    def _set_clock(self, place: int) -> None:
        """Let this thread set the device's clock against the host's, if that has not been done lately."""
        clock = self.clocks.get(place)
        if clock is None or clock.is_old:
            device = self.devices[place - 1]
            self.lock.release()
            try:
                fresh = Clock(device, clock)
            except Exception:  # a device that cannot be asked fails the items too, and says so there
                fresh = None
            finally:
                self.lock.acquire()
            if fresh is not None:
                self.clocks[place] = fresh

    def _stamp(self, state: RunState, tail: Tail, position: int) -> None:
        """Turn the device times of what has ended in a stream into host times."""
        flight = state.flight
        assert flight is not None
        clock = self.clocks.get(self.devices.index(tail.queue.device) + 1)
        for each in flight.queue.get(tail.key, ()):
            if flight.number[each] > flight.number[position]:
                break
            stamps = state.stamps.pop(each, None)
            if stamps is not None and clock is not None:
                state.lanes[each] = tail.index
                state.started[each], state.finished[each] = clock.at(stamps[0]), clock.at(stamps[1])
