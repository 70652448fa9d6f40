"""When plait itself fails on a lane of a device: what is in flight there is drained, so that runs end and give back.

Every function is called with the dispatcher's lock held.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from plait.scheduler.kinds import IN, LAUNCH
from plait.scheduler.lane_failure import LaneFailed, abandon, fail_runs, recount
from plait.scheduler.tail import Tail

if TYPE_CHECKING:
    from plait.scheduler.device_lanes import DeviceLanes
    from plait.scheduler.lanes import Lane
    from plait.scheduler.state import RunState


def device_lane_failed(lanes: DeviceLanes, lane: Lane, error: BaseException) -> None:
    """With the lock held, after ``lane``'s runs were told to stop: what it was enqueueing fails with it."""
    for (place, role, _, _), tail in list(lanes.tails.items()):
        state, position = tail.busy
        if 3 * place + role == lane.kind and state is not None:
            tail.busy = None, -1
            assert state.flight is not None
            state.flight.failing.setdefault(position, error)
    _drain(lanes, lane.kind // 3)


def _drain(lanes: DeviceLanes, place: int) -> None:
    """With the lock held: of the runs that are stopping, hear of the end of what is in flight on a device."""
    tails = [tail for key, tail in lanes.tails.items() if key[0] == place]
    for state in [state for state in lanes.dispatcher.runs if state.stopping and state.flight is not None]:
        flight = state.flight
        assert flight is not None
        held = {position for queue in flight.queue.values() for position in queue}
        held.update(position for others in flight.deferred.values() for position in others)
        kinds = 3 * place + LAUNCH, 3 * place + IN
        for position, kind in enumerate(state.plan.kinds):
            if kind in kinds and position not in held:
                abandon(state, position)
        recount(state)
        for tail in tails:
            queue = flight.queue.get(tail.key)
            if queue and tail.busy != (state, queue[-1]):
                flight.event[queue[-1]] = None  # so that it is followed by a new one
                lanes.follow(state, tail, queue[-1])
        lanes.dispatcher.after(state)
    for tail in tails:
        _count_in_flight(lanes, tail)
        lanes.unpark(tail)


def _count_in_flight(lanes: DeviceLanes, tail: Tail) -> None:
    flights = [state.flight for state in lanes.dispatcher.runs]
    tail.in_flight = sum(len(flight.queue.get(tail.key, ())) for flight in flights if flight is not None)


def forget_flight(lanes: DeviceLanes, state: RunState) -> None:
    """With the lock held, which is let go: nothing of a run is in flight afterwards, and nobody hears of it."""
    flight = state.flight
    assert flight is not None
    streams, flight.queue = flight.queue, {}
    flight.deferred.clear()
    for tail in [tail for tail in lanes.tails.values() if streams.get(tail.key)]:
        _count_in_flight(lanes, tail)
        lanes.lock.release()
        try:
            with contextlib.suppress(Exception):
                tail.queue.driver.synchronize()
        finally:
            lanes.lock.acquire()


def hearing_failed(lanes: DeviceLanes, tail: Tail, error: BaseException) -> None:
    """With the lock held: what is told of a device's stream could not be taken in."""
    place = lanes.devices.index(tail.queue.device) + 1
    runs = lanes.dispatcher.runs
    states = [state for state in runs if state.plan.on_device and place in state.plan.on_device.devices]
    fail_runs(lanes.dispatcher, states, LaneFailed(tail.queue.name, tail.queue.device.name, None, error))
    _drain(lanes, place)
