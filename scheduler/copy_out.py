"""Copies from a device to the host: several are under way at once, and the lane waits for each in turn.

Every function is called with the dispatcher's lock held, and lets go of it while it copies or waits.
"""

from __future__ import annotations

import contextlib
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from plait.errors import DeviceLost
from plait.scheduler.crossing import begin_out
from plait.scheduler.expand import Transfer
from plait.scheduler.kinds import OUT
from plait.scheduler.lane_failure import abandon
from plait.scheduler.tail import Tail

if TYPE_CHECKING:
    from plait.scheduler.device_lanes import DeviceLanes
    from plait.scheduler.lanes import Lane
    from plait.scheduler.state import RunState

BEGUN = 4  # copies to the host under way at once


def serve_out(lanes: DeviceLanes, lane: Lane, state: RunState, place: int) -> None:
    begun: deque[tuple[int, Tail, Any, Any, Any]] = deque()
    try:
        _carry_out(lanes, lane, state, place, begun)
    except BaseException:
        _finish_begun(lanes, state, begun)
        raise


def _finish_begun(lanes: DeviceLanes, state: RunState, begun: deque[tuple[int, Tail, Any, Any, Any]]) -> None:
    """Wait for copies that nobody will hear of."""
    for position, _, _, copies, _ in begun:
        lanes.lock.release()
        try:
            with contextlib.suppress(Exception):
                for copy in copies:
                    copy.finish()
        finally:
            lanes.lock.acquire()
        abandon(state, position)


def _carry_out(
    lanes: DeviceLanes, lane: Lane, state: RunState, place: int, begun: deque[tuple[int, Tail, Any, Any, Any]]
) -> None:
    flight = state.flight
    assert flight is not None
    entered, yielding = lanes.dispatcher.now_ns(), False
    dead: list[Any] = []
    while True:
        position = state.peek(lane.kind) if len(begun) < BEGUN and not yielding else -1
        if position >= 0:
            tail = lanes.tail_for(state, place, OUT, position)
            if tail is None or state.peek(lane.kind) != position:
                continue
            lane.position = state.pop(lane.kind)
            number = lanes.numbers[place] = lanes.numbers[place] + 1
            waits = lanes.waits_for(state, position, tail)
            flight.stream[position], flight.lane[position], flight.number[position] = tail.key, tail.index, number
            lanes.lock.release()
            value: Any = None
            copies: list[Any] = []
            error: BaseException | None = None
            started: Any = None
            try:
                for event in waits:
                    tail.queue.wait_event(event)
                if state.traced:
                    started = tail.queue.record(timing=True)
                item = state.plan.item(position)
                assert isinstance(item, Transfer)
                value, copies = begin_out(tail.queue, state.values[item.source_slot])
                if state.traced:
                    state.enqueued[position] = lanes.dispatcher.now_ns()
            except BaseException as raised:
                error = raised
            finally:
                lanes.lock.acquire()
            if error is None:
                begun.append((position, tail, value, copies, started))
            else:
                end_out(lanes, state, position, tail, error, dead)
        elif begun:
            position, tail, value, copies, started = begun.popleft()
            lane.position = position
            lanes.lock.release()
            error = None
            try:
                for copy in copies:
                    copy.finish()
                state.values[state.plan.outs[position]] = value
            except BaseException as raised:
                error = raised
            finally:
                finished = perf_counter_ns()
                value, copies = None, []
                lanes.lock.acquire()
            clock = lanes.clocks.get(place)
            if state.traced and clock is not None:
                began = finished
                if error is None:
                    with contextlib.suppress(Exception):  # a device that was lost meanwhile keeps no times
                        began = min(finished, clock.at(started))
                state.started[position], state.finished[position] = began, finished
                state.lanes[position] = tail.index
                state.measure_slot(state.plan.outs[position])
            end_out(lanes, state, position, tail, error, dead)
            lane.position = -1
            yielding = yielding or lanes.dispatcher.should_yield(lane, state, entered)
        else:
            break


def end_out(
    lanes: DeviceLanes, state: RunState, position: int, tail: Tail, error: BaseException | None, dead: list[Any]
) -> None:
    flight = state.flight
    assert flight is not None
    if error is not None:
        flight.failing[position] = error
        if isinstance(error, DeviceLost):
            lanes.lose(tail, error)
    elif state.memory is not None:
        state.memory.produced(position)
    flight.end(position, dead)
    lanes.dispatcher.drop(dead)
    lanes.dispatcher.settle_memory()
    lanes.dispatcher.announce(state, joining=False)
    lanes.dispatcher.after(state)
