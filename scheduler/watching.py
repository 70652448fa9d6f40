"""The watching lane: one that waits, without work, until another is stuck in a long item while more could run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plait.scheduler.kinds import COMPUTE
from plait.scheduler.state import RunState

if TYPE_CHECKING:
    from plait.scheduler.lanes import Dispatcher, Lane

LOOK_S, LOOK_LONGEST_S = 200e-6, 5e-3  # how often a watching lane looks whether the serving one is stuck


class Watching:
    """Which lane watches, and the bell that turns it into a serving one. Guarded by the dispatcher's lock."""

    __slots__ = ("bell", "lane", "rung")

    def __init__(self) -> None:
        self.bell = threading.Lock()  # guards nothing
        self.bell.acquire()
        self.lane: Lane | None = None
        self.rung = False

    def ring(self) -> None:
        """Have the watching lane serve, if there is one."""
        if self.lane is not None and not self.rung:
            self.rung = True
            self.bell.release()

    def end(self) -> None:
        """The lane watches no more."""
        self.bell.acquire(blocking=False)
        self.rung = False
        self.lane = None


def watch(dispatcher: Dispatcher, watching: Watching, lane: Lane) -> None:
    """With the lock held, which is let go: wait until rung or until a serving lane is stuck while others could run."""
    lane.retired = False
    watching.lane = lane
    timeout = LOOK_S
    seen = progress(dispatcher)
    while seen and not watching.rung:
        dispatcher.lock.release()
        try:
            watching.bell.acquire(timeout=timeout)
        finally:
            dispatcher.lock.acquire()
        if watching.rung or lane.stream.contended:
            break
        now = progress(dispatcher)
        if seen & now and _split_stuck(dispatcher, seen & now):
            break
        seen = now
        if timeout == LOOK_LONGEST_S and dispatcher.serving[COMPUTE] == 1:
            dispatcher.set_crowded(False)
        timeout = min(2 * timeout, LOOK_LONGEST_S)
    watching.end()


def progress(dispatcher: Dispatcher) -> set[tuple[object, int]]:
    """A mark per serving compute lane or straight run that changes whenever an item of it ends."""
    marks: set[tuple[object, int]] = {
        (state, state.cursor) for state in dispatcher.runs if state.straight and state.owned
    }
    marks.update(
        (lane, lane.since_ns) for lane in dispatcher.lanes if lane.kind == COMPUTE and lane.busy and lane.since_ns
    )
    return marks


def _split_stuck(dispatcher: Dispatcher, stuck: set[tuple[object, int]]) -> bool:
    """Make what a stuck lane holds back available; whether there is anything to take over."""
    for mark, _ in stuck:
        if isinstance(mark, RunState) and mark.straight and not mark.plan.chain:
            mark.promote()
            dispatcher.announce(mark, joining=False)
    return any(state.has_work(COMPUTE) for state in dispatcher.runs)
