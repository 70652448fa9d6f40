"""What becomes of runs when a lane itself fails, in an item or between two: they fail of it, and nothing hangs.

What an item raises is that item's failure and none of this file's. Here is what nobody expected: no memory for the
scheduler's own lists, a recursion that went too deep, a bug. The counts of the run that the lane served cannot be
trusted then, so they are taken anew from what is known to be in flight; that is waited for as after any other failure.
Everything here is called with the dispatcher's lock held.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from plait.errors import PlaitError
from plait.scheduler.kinds import COMPUTE, COPY, LOOP
from plait.scheduler.seeing.logs import log
from plait.scheduler.seeing.nesting import lane_position
from plait.scheduler.state import FAILED, RUNNING, RunState

if TYPE_CHECKING:
    from plait.scheduler.lanes import Dispatcher, Lane

_REASON = "a stream of the scheduler failed"


class LaneFailed(PlaitError):
    """A lane failed; what it raised is the ``__cause__``. ``item`` names what it was in, ``stream`` its stream."""

    def __init__(self, stream: str, device: str, item: str | None, cause: BaseException) -> None:
        at = "between two items" if item is None else f"at item {item!r}"
        hint = " (this is the scheduler's own failure: please report it, with the traceback of the cause)"
        if isinstance(cause, MemoryError):
            hint = " (the process has no memory left for the scheduler's own lists)"
        elif isinstance(cause, PlaitError):
            hint = ""
        super().__init__(f"stream {stream} failed {at}: {type(cause).__name__}: {cause}{hint}")
        self.stream, self.device, self.item = stream, device, item
        self.__cause__ = cause


def lane_failed(dispatcher: Dispatcher, lane: Lane, error: BaseException) -> None:
    """Every run that the lane could serve fails; ``lane.state`` and ``lane.position`` are what it was in."""
    held, position = lane.state, lane.position
    at = -1 if held is None else lane_position(lane, held) if held.straight else position
    item = held.plan.item(at).name if held is not None and 0 <= at < len(held.plan.calls) else None
    failure = LaneFailed(lane.stream.name, _device_of(dispatcher, lane), item, error)
    log.error("%s", failure, exc_info=error)
    if held is not None and position >= 0:
        abandon(held, position)
    fail_runs(dispatcher, [state for state in dispatcher.runs if state is held or _serves(lane, state)], failure)


def fail_runs(dispatcher: Dispatcher, states: list[RunState], failure: LaneFailed) -> None:
    """These runs start nothing more and fail; who cannot even be stopped is let go of as it is."""
    for state in sorted(states, key=lambda each: each.serial):
        state.isolate = False  # of such a run nothing can be relied on
        if not any(isinstance(error, LaneFailed) for _, error, _ in state.errors):
            state.errors.append((-1, failure, -1))
        try:
            state.stop(_REASON)
            recount(state)
            dispatcher.after(state)
        except BaseException as error:
            let_go(dispatcher, state, error)


def abandon(state: RunState, position: int) -> None:
    """An item will not be heard of any more; its run is failing, so nothing is done for those behind it."""
    if not state.status or state.status[position] != RUNNING:
        return
    if state.flight is None or not any(position in others for others in state.flight.deferred.values()):
        state.status[position] = FAILED


def recount(state: RunState) -> None:
    """Count anew what is in flight; of a run that was straight its owner has one item in hand, which is not counted."""
    if not state.straight:
        owners = state.owned and state.promoted_at < len(state.status) and state.status[state.promoted_at] == RUNNING
        state.active = state.status.count(RUNNING) - owners


def let_go(dispatcher: Dispatcher, state: RunState, error: BaseException) -> None:
    """The last resort: the run is over, whatever may be in flight of it."""
    log.error("run of graph %r could not be stopped in order", state.plan.program.graph.name, exc_info=error)
    state.stopping = state.attention = True
    with contextlib.suppress(Exception):
        dispatcher.forget_flight(state)
    dispatcher.discard(state)


def _serves(lane: Lane, state: RunState) -> bool:
    """Whether a run may need the lane."""
    if lane.kind == COMPUTE:
        return True
    if lane.kind == COPY:
        return state.memory is not None or COPY in state.plan.kinds
    return state.plan.on_device is not None and lane.kind // 3 in state.plan.on_device.devices


def _device_of(dispatcher: Dispatcher, lane: Lane) -> str:
    return "host" if lane.kind <= LOOP else dispatcher.device_name(lane.kind // 3)
