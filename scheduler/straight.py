"""The fast path: items of a run one after the other, with nothing counted, locked or posted between them."""

from __future__ import annotations

from itertools import repeat, starmap
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
    """The same loop with one clock reading an item, which starts it and ends the one before.

    The clock is read in C while the loop is advanced, and the readings stay in one list a call, as they came: to spread
    them over arrays would cost as much again. The list ends where the first item that did not run would start.
    """
    plan, values, sizes, count = state.plan, state.values, state.sizes, end - start
    stamps = [0] * count
    state.stamps_straight.append((start, lane, stamps))
    failed = 0
    try:
        for index, position, call, getter, out, free, stamps[index] in zip(  # noqa: B007  the last target uses it
            range(count),
            range(start, end),
            plan.calls[start:end],
            plan.getters[start:end],
            plan.outs[start:end],
            plan.frees[start:end],
            starmap(perf_counter_ns, repeat((), count)),
            strict=True,
        ):
            state.cursor = position
            if state.attention:
                return None
            values[out] = result = call(*getter(values))
            if result is not None and type(result) is ndarray:
                sizes[out] = result.nbytes
            for slot in free:
                values[slot] = None
        state.cursor = end
    except BaseException as error:
        failed = 1
        return error
    finally:
        stamps[state.cursor - start + failed :] = [perf_counter_ns()]
    return None
