"""The fast path: items of a run one after the other, with nothing counted, locked or posted between them."""

from __future__ import annotations

from array import array
from time import perf_counter_ns
from typing import TYPE_CHECKING

from numpy import ndarray

if TYPE_CHECKING:
    from plait.scheduler.state import RunState


def run_straight(state: RunState, start: int, end: int, lane: int) -> BaseException | None:
    """Run positions ``start`` to ``end``; on return ``state.cursor`` is the first position that did not run.

    The order of two lines carries the hand-over to other lanes without a lock: the cursor is stored before the
    attention flag is read, and who wants to take over sets the flag before it reads the cursor. So whoever reads
    the cursor knows that everything before it is done and that the item under it is this lane's, run or not.

    Returns the exception of the item under the cursor, if it failed.
    """
    if state.traced:
        return _run_traced(state, start, end, lane)
    plan, values = state.plan, state.values
    try:
        for position, call, getter, out, free in zip(
            range(start, end),
            plan.calls[start:end],
            plan.getters[start:end],
            plan.outs[start:end],
            plan.frees[start:end],
            strict=True,
        ):
            state.cursor = position
            if state.attention:
                return None
            values[out] = call(*getter(values))
            for slot in free:
                values[slot] = None
    except BaseException as error:
        return error
    state.cursor = end
    return None


def _run_traced(state: RunState, start: int, end: int, lane: int) -> BaseException | None:
    """The same loop with a time stamp after every item; an item starts where the one before it ended."""
    plan, values, clock = state.plan, state.values, perf_counter_ns
    sizes, junk = state.sizes, len(values) - 1
    stamps = [clock()]
    stamp = stamps.append
    try:
        for position, call, getter, out, free in zip(
            range(start, end),
            plan.calls[start:end],
            plan.getters[start:end],
            plan.outs[start:end],
            plan.frees[start:end],
            strict=True,
        ):
            state.cursor = position
            if state.attention:
                return None
            values[out] = result = call(*getter(values))
            if result.__class__ is ndarray:
                sizes[out] = result.nbytes
            elif out == junk:
                state.measure(position)
            for slot in free:
                values[slot] = None
            stamp(clock())
        state.cursor = end
        return None
    except BaseException as error:
        stamp(clock())
        return error
    finally:
        ran = start + len(stamps) - 1
        state.started[start:ran] = stamps[:-1]
        state.finished[start:ran] = stamps[1:]
        state.lanes[start:ran] = array("H", [lane]) * (ran - start)
