"""Device lanes in virtual time: what the real ones decide, put into the queues of simulated devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.devices import Mark
from plait.devices.sim import COMPUTE, IN, NOTHING, OUT, PEER, Op, SimDevice
from plait.errors import DeviceLost
from plait.graph import BARRIER
from plait.scheduler.bind import Packed
from plait.scheduler.containers import leaves
from plait.scheduler.copy_out import end_out
from plait.scheduler.deferred import Cell, Sized, copied, resolved
from plait.scheduler.device_lanes import DeviceLanes
from plait.scheduler.expand import HOST, Transfer
from plait.scheduler.kinds import OUT as OUT_ROLE
from plait.scheduler.memory.backing import OnHost
from plait.scheduler.memory.move import Move
from plait.scheduler.state import FAILED, SKIPPED
from plait.scheduler.tail import Tail

if TYPE_CHECKING:
    from plait.scheduler.lanes import Lane
    from plait.scheduler.state import RunState
    from plait.scheduler.virtual_lanes import VirtualDispatcher


class _At:
    """The clock of a simulated device: its times are the host's."""

    host_ns = 1 << 62  # never too old

    @staticmethod
    def at(stamp: Any) -> int:
        """When an operation began or ended."""
        return int(stamp())


class VirtualDeviceLanes(DeviceLanes):
    """Streams, waits, windows and who hears of what are ``DeviceLanes``'; here is what stands for the driver."""

    dispatcher: VirtualDispatcher

    def _set_clock(self, place: int) -> None:
        self.clocks[place] = _At()  # type: ignore[assignment]

    def _reached(self, state: RunState, tail: Tail, position: int, mark: Mark) -> None:
        flight = state.flight
        assert flight is not None
        number = flight.number
        ended = list(takewhile(lambda each: number[each] <= number[position], flight.queue.get(tail.key, ())))
        super()._reached(state, tail, position, mark)
        for each in ended:  # nobody needs to wait for them any more, and a long run has many
            flight.event[each] = None

    def _enqueue(self, state: RunState, position: int, tail: Tail, waits: list[Any]) -> Op:
        device: SimDevice = tail.queue.device  # type: ignore[assignment]
        plan, flight = state.plan, state.flight
        assert flight is not None
        item = plan.item(position)
        op = self._transfer(state, item, device) if isinstance(item, Transfer) else self._call(state, position, tail)
        op.waits = waits
        if state.traced:
            state.stamps[position] = op.began_at, op.ended_at
            state.enqueued[position] = self.dispatcher.now_ns()
            for slot in plan.touched[position]:
                if not state.sizes[slot]:
                    state.measure_slot(slot)
        tail.queue.push(op)  # type: ignore[attr-defined]
        return op

    def _call(self, state: RunState, position: int, tail: Tail) -> Op:
        plan, values, device = state.plan, state.values, tail.queue.device
        estimates = self.dispatcher.estimates(state)
        item = plan.item(position)
        place = plan.kinds[position] // 3
        first = getattr(item, "first_result", -1)
        slots = [plan.expansion.slot(place, first + k) for k in range(item.options.outputs)] if first >= 0 else []
        engine = NOTHING if item.kind == BARRIER else COMPUTE
        dry = self.dispatcher.dry
        args = None if dry else plan.getters[position](values)
        cells = [Cell(device.memory, estimates.nbytes[slot]) for slot in slots]
        assert plan.on_device is not None
        for slot, cell in zip(slots, cells, strict=True):
            values[slot] = cell
            if slot in plan.on_device.local and state.memory is None:  # what is counted goes when its users have ended
                cell.queue = tail.queue
        planted = estimates.planted.get(position)
        task = None if dry else self._task(state, position, args, dict(zip(slots, cells, strict=True)))
        if planted is not None:
            task = self._failing(state, position, planted)
        op = Op(engine, estimates.took_ns[position], task=task)
        op.early = self.dispatcher.simulation.early()
        return op

    def _task(self, state: RunState, position: int, args: Any, cells: dict[int, Cell]) -> Callable[[], None]:
        """The item's call, for when its time has come."""
        function, flight = state.plan.calls[position], state.flight
        assert flight is not None
        before = flight.part.before[position]

        def call() -> None:
            if isinstance(function, Packed):
                sink: Any = {-2: state}
                function(sink, *[resolved(arg) for arg in args[1:]])
                made = sink
            else:
                made = dict.fromkeys(cells, function(*[resolved(arg) for arg in args]))
            for slot, cell in cells.items():
                if slot in made:
                    cell.fill(made[slot])

        def task() -> None:
            status = state.status
            if any(each in flight.failing or status[each] in (FAILED, SKIPPED) for each in before):
                return  # what it would work on is not there: it will be skipped
            try:
                state.context.copy().run(call)
            except BaseException as error:  # whatever it is, it is the item's failure
                self._failing(state, position, error)()

        return task

    @staticmethod
    def _failing(state: RunState, position: int, error: BaseException) -> Callable[[], None]:
        """What makes an item fail."""

        def fail() -> None:
            assert state.flight is not None
            state.flight.failing.setdefault(position, error)
            if not state.isolate:
                state.stop("an item failed")

        return fail

    def _transfer(self, state: RunState, item: Transfer, device: SimDevice) -> Op:
        """What makes a replica on a device: out of nothing, from the host, from another device."""
        values, nbytes = state.values, self.dispatcher.estimates(state).nbytes[item.target_slot]
        there = values[item.target_slot]
        cell = values[item.target_slot] = there if isinstance(there, Cell) else Cell(device.memory, nbytes)
        dry = self.dispatcher.dry
        if item.source is None:
            buffer = item.buffer
            rate = device.model.bytes_per_s
            took_ns = round(1e9 * nbytes / rate) if rate and item.filled and nbytes > 0 else 0

            def make() -> None:
                value = buffer.value if buffer is not None and item.filled else None
                shape, dtype = buffer.shape, buffer.dtype  # type: ignore[union-attr]
                cell.fill(np.empty(shape, dtype) if value is None else np.full(shape, value, dtype))

            return Op(COMPUTE if item.filled else NOTHING, took_ns, task=None if dry else make)
        source, place = values[item.source_slot], item.source

        def copy() -> None:
            value, target = copied(source), cell.value
            if isinstance(value, np.ndarray) and isinstance(target, np.ndarray) and _alike(value, target):
                target[...] = value
            else:
                cell.fill(value)

        name = self.dispatcher.simulation.devices[place].name
        latency_ns, route = self.dispatcher.simulation.route(name, device.name)
        size = nbytes if nbytes >= 0 else lambda: size_of(source)
        return Op(IN if place == HOST else PEER, latency_ns, task=None if dry else copy, route=route, nbytes=size)

    # ---- copying out ------------------------------------------------------------------------------------------

    def _serve_out(self, lane: Lane, state: RunState, place: int) -> None:
        flight = state.flight
        assert flight is not None
        position = state.peek(lane.kind)
        tail = self.tail_for(state, place, OUT_ROLE, position) if position >= 0 else None
        if tail is None or state.peek(lane.kind) != position:
            return
        lane.position = state.pop(lane.kind)
        number = self.numbers[place] = self.numbers[place] + 1
        waits = self.waits_for(state, position, tail)
        flight.stream[position], flight.lane[position], flight.number[position] = tail.key, tail.index, number
        item, simulation = state.plan.item(position), self.dispatcher.simulation
        assert isinstance(item, Transfer)
        source = state.values[item.source_slot]
        nbytes = self.dispatcher.estimates(state).nbytes[item.source_slot]
        latency_ns, route = simulation.route(state.plan.places[place], "host")
        made: list[Any] = []
        dry = self.dispatcher.dry

        def bring() -> None:
            made.append(Sized(simulation.host.memory, nbytes) if dry else copied(source))

        size = nbytes if nbytes >= 0 else lambda: size_of(source)
        op = Op(OUT, latency_ns, waits=waits, task=bring, route=route, nbytes=size)
        op.then(functools.partial(self._brought_out, state, position, tail, op, made))
        if state.traced:
            state.enqueued[position] = self.dispatcher.now_ns()
        tail.queue.push(op)  # type: ignore[attr-defined]
        lane.position = -1

    def _brought_out(self, state: RunState, position: int, tail: Tail, op: Op, made: list[Any]) -> None:
        dead: list[Any] = []
        with self.lock:
            if state not in self.dispatcher.runs:
                return
            error = op.error
            flight = state.flight
            assert flight is not None
            failed = any(state.status[each] in (FAILED, SKIPPED) for each in flight.part.before[position])
            if failed and not isinstance(error, DeviceLost):
                error = None  # what it would have brought was not made: it is skipped with that
            if made and error is None:
                state.values[state.plan.outs[position]] = made[0]
            if state.traced and error is None:
                state.started[position], state.finished[position] = op.start_ns, op.end_ns
                state.lanes[position] = tail.index
                state.measure_slot(state.plan.outs[position])
            end_out(self, state, position, tail, error, dead)

    # ---- making room ------------------------------------------------------------------------------------------

    def move(self, lane: Lane, state: RunState, move: Move, moved: Callable[..., None]) -> None:
        """Start to move an allocation to the host or back; ``moved`` is told at its end."""
        simulation, allocation = self.dispatcher.simulation, move.allocation
        try:
            queue: Any = self.move_queue(lane)
        except Exception as error:  # the device is lost
            moved(state, move, error)
            return
        slot, dry = next(iter(allocation.slots)), self.dispatcher.dry
        ends = (queue.device.name, "host") if move.out else ("host", queue.device.name)
        source = state.values[slot] if move.out else move.backing

        def carry() -> None:
            if move.out:
                made = Sized(simulation.host.memory, allocation.nbytes) if dry else copied(source)
                move.backing = OnHost(made)
                return
            cell = Cell(queue.device.memory, allocation.nbytes)
            if isinstance(source, OnHost) and not dry:
                cell.fill(copied(source.array))
            move.values = {slot: cell}

        latency_ns, route = simulation.route(*ends)
        op = Op(OUT if move.out else IN, latency_ns, task=carry, route=route, nbytes=allocation.nbytes)
        op.then(lambda: moved(state, move, op.error))
        queue.push(op)


def size_of(value: Any) -> int:
    """The bytes of the arrays in a value."""
    value = value.value if isinstance(value, Cell) else value
    return sum(int(getattr(part, "nbytes", 0)) for part in leaves(value))


def _alike(value: Any, target: Any) -> bool:
    return bool(value.shape == target.shape and value.dtype == target.dtype)
