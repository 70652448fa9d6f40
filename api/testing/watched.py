"""Bounds for explored runs: one that stands still, or that never ends, is told from one that takes its time."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from plait.scheduler import Run, Scheduler

LONGEST_S = 1e6  # of virtual time: no run that still moves takes so long
BUSY_S = 30.0  # of real time without an end: something goes round in circles
_MOST = 3  # items that are named


class GoesRound(Exception):
    """Raised into a thread that is busy and gets nowhere."""


@contextmanager
def bounded(busy_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """If the block is at work for longer, say so, and raise GoesRound in this thread each second until it ends."""
    over, me = threading.Event(), threading.get_ident()

    def interrupt() -> None:
        wait = busy_s
        while not over.wait(wait):
            say(f"it goes round in circles: no end after {busy_s:g} s")
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(GoesRound))
            wait = 1.0

    thread = threading.Thread(target=interrupt, name="explore: bound")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def end_if_still(
    scheduler: Scheduler, runs: list[Run], say: Callable[[str], None], scope: trio.CancelScope
) -> None:
    """After ``LONGEST_S``, say what is stuck; then cancel, and after as long again end what does not end of itself."""
    with scope:
        await trio.sleep(LONGEST_S)
        say(f"nothing moves any more: {stuck(runs)}")
        for run in runs:
            run.cancel()
        await trio.sleep(LONGEST_S)
        for run in runs:
            scheduler.dispatcher.runs.discard(run._state)
            run._state.stopping = True
            run._news.set()


def stuck(runs: list[Run]) -> str:
    """In words, which items of the runs have not ended, and why."""
    words = []
    for run in runs:
        if not run.done:
            names = [run.plan.item(position).name for position in run._unfinished()]
            words += [f"{run.progress}", *(run.why(name) for name in names[:_MOST])]
    return "; ".join(words) or "the runs have ended, and the scheduler does not close"
