"""Waiting from trio: device completions become wake-ups of tasks, one message to the loop per batch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import trio
from plait.devices.mark import Mark, mark_of
from plait.devices.protocol import Event, Stream
from plait.errors import DeviceError


class _Waiter:
    """One task that waits until a number of marks are settled."""

    __slots__ = ("completions", "left", "task")

    def __init__(self, completions: _Completions, task: trio.lowlevel.Task, left: int) -> None:
        self.completions = completions
        self.task: trio.lowlevel.Task | None = task
        self.left = left

    def count(self) -> None:
        """Callback of each mark: on any thread; never raises."""
        self.completions.count(self)


class _Completions:
    """What has finished and is not told yet, for one trio run."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        # Guards the list, the flag and the waiters' counts: callbacks come on any thread. Not a message each:
        # one per batch is
        # the point. Re-entrant, since a finalizer that settles something may run while we hold it.
        self._lock = threading.RLock()
        self._finished: list[_Waiter] = []  # bounded by the number of waiting tasks
        self._told = False

    def count(self, waiter: _Waiter) -> None:
        with self._lock:
            waiter.left -= 1
            if waiter.left or waiter.task is None:
                return
            self._finished.append(waiter)
            if self._told:
                return
            self._told = True
        with contextlib.suppress(trio.RunFinishedError):  # the loop is gone, and its tasks with it
            self._token.run_sync_soon(self._drain)

    def _drain(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
            self._told = False
        for waiter in finished:
            task, waiter.task = waiter.task, None
            if task is not None:  # else cancelled in between
                trio.lowlevel.reschedule(task)


_completions: trio.lowlevel.RunVar[_Completions] = trio.lowlevel.RunVar("plait.devices completions")


def _this_run() -> _Completions:
    try:
        return _completions.get()
    except LookupError:
        completions = _Completions(trio.lowlevel.current_trio_token())
        _completions.set(completions)
        return completions
    except RuntimeError:
        raise DeviceError(
            "events and streams are awaited from trio, and no trio loop runs here; "
            "from asyncio or plain code use add_callback, or run the graph with plait.run_async or plait.run"
        ) from None


async def wait_mark(mark: Mark | None) -> None:
    """Wait for one mark, None being one that is done; always a checkpoint. Raises its error."""
    await wait_marks(() if mark is None else (mark,))


async def wait_marks(marks: Sequence[Mark]) -> None:
    """Wait until all are settled, then raise the error of the first, in the order given, that failed; always
    a checkpoint.

    Cancelling forgets the marks and leaves the devices alone.
    """
    completions = _this_run()
    pending = list(dict.fromkeys(mark for mark in marks if not mark.settled))
    if pending:
        waiter = _Waiter(completions, trio.lowlevel.current_task(), len(pending))
        count = waiter.count
        for mark in pending:
            mark.subscribe(count, waiter)

        def abort(_: object) -> trio.lowlevel.Abort:
            waiter.task = None
            for mark in pending:
                mark.unsubscribe(waiter)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
    else:
        await trio.lowlevel.checkpoint()
    for mark in marks:
        if mark.error is not None:
            mark.raise_error()


async def wait(thing: Any) -> None:
    """Wait for an event, for all that a stream holds now, or for all of an iterable of these; always a
    checkpoint.

    Events and streams are plait's, CuPy's or PyTorch's; whatever has ``__cuda_stream__`` is a stream too.

    Raises the error of the first, in the order given, that failed, once all are settled. Cancelling leaves
    the devices alone.
    """
    await wait_marks(_marks(thing))


def _marks(thing: object) -> list[Mark]:
    if _is_one(thing):
        found = [_mark(thing)]
    elif isinstance(thing, Iterable) and not isinstance(thing, str | bytes) and not hasattr(thing, "__array__"):
        found = [_mark(entry) for entry in thing]
    else:
        _refuse(thing)
    return [mark for mark in found if mark is not None]


def _is_one(thing: object) -> bool:
    return hasattr(thing, "add_callback") or hasattr(thing, "synchronize") or hasattr(thing, "__cuda_stream__")


def _mark(thing: object) -> Mark | None:
    if hasattr(thing, "snapshot") or isinstance(thing, Event | Stream):
        return mark_of(thing)
    from plait.devices.gpu.foreign import foreign_mark, is_foreign  # noqa: PLC0415  an optional backend

    if not is_foreign(thing):
        _refuse(thing)
    return foreign_mark(thing)


def _refuse(thing: object) -> NoReturn:
    kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
    raise DeviceError(
        f"cannot wait for a {kind}: wait takes an event or a stream of plait, CuPy or PyTorch, an object with "
        "__cuda_stream__, or an iterable of these"
    )


__all__ = ["wait", "wait_mark", "wait_marks"]
