"""What is said when a Ctrl-C has to wait: which items still run, since a function on a thread cannot be interrupted."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import trio
from plait.scheduler import Run
from plait.scheduler.seeing.why import still_running

PATIENCE_S = 0.5  # most items have ended by then, and nothing need be said
_MOST = 3

_ends: ContextVar[bool] = ContextVar("ends", default=False)


@contextlib.contextmanager
def second_ends_process() -> Iterator[None]:
    """In here a second Ctrl-C, once it has been offered, ends the process at once, as the command line wants it."""
    token = _ends.set(True)
    try:
        yield
    finally:
        _ends.reset(token)


async def wait_until_stopped(run: Run) -> None:
    """Wait for a run that was cancelled; if that takes a while, say once on standard error what it waits for."""
    with trio.CancelScope(shield=True):
        with trio.move_on_after(PATIENCE_S):
            await run._finished.wait()
            return
        offered = _ends.get() and threading.current_thread() is threading.main_thread()
        with _default_interrupt() if offered else contextlib.nullcontext():
            if sys.stderr is not None:
                print(f"plait: {_message(run, offered)}", file=sys.stderr, flush=True)
            await run._finished.wait()


def _message(run: Run, offered: bool) -> str:
    running = still_running(run._scheduler.dispatcher, run._state)
    more = f" and {len(running) - _MOST} more" if len(running) > _MOST else ""
    waits = f"waiting for {', '.join(running[:_MOST])}{more}" if running else "waiting for what is in flight"
    again = "; Ctrl-C again ends the process at once" if offered else ", which cannot be interrupted"
    return f"stopping: {waits}{again}"


@contextlib.contextmanager
def _default_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
