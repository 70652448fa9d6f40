"""Which item the code that runs now belongs to, so that a run which it starts knows its parent."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.scheduler.lanes import Lane
    from plait.scheduler.state import RunState

# Set once for each turn of a lane, not for each item, so a lane stands for the item that it is in.
CURRENT: ContextVar[tuple[RunState, Lane | int] | None] = ContextVar("CURRENT", default=None)


def parent_item() -> tuple[Any, int] | None:
    """The run and the position of the item that calls this, None outside of items."""
    current = CURRENT.get()
    if current is None:
        return None
    state, at = current
    if isinstance(at, int):
        return state, at
    if at.state is not state:
        return None  # whoever copied this context goes on after the item
    return state, lane_position(at, state)


def lane_position(lane: Lane, state: RunState) -> int:
    """The item that a lane is in."""
    return state.cursor if lane.position < 0 else lane.position
