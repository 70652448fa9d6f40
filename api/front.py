"""The front door: run a graph from plain code, from trio, from asyncio, from a notebook cell."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import networkx as nx
import trio
from plait.devices import carried, worker_waits
from plait.graph import Graph
from plait.scheduler import Outputs, Run, default_streams, open_scheduler
from plait.stopping import wait_until_stopped

if TYPE_CHECKING:
    from plait.scheduler.watch import Display


def run(
    graph: Graph | nx.DiGraph[Any],
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    scheduler: Mapping[str, Any] | None = None,
    watch: Callable[[Run], None] | None = None,
    live: bool = False,
    **named: Any,
) -> Outputs:
    """Run ``graph`` and return its outputs by name; blocks until then.

    Inputs come by keyword, or in a mapping where a name is not free; ``priority``, ``timeout`` and ``deadline``
    (seconds) and ``on_error`` go to the run, ``scheduler`` holds options for ``open_scheduler``, and ``watch`` is
    called with the run when it has ended, also in failure; ``live=True`` shows the run while it goes on, as
    ``Run.watch`` does. With either it is traced, and the outputs' ``run`` is the run. Where an event loop is already
    running in this thread (a notebook), the run has a thread and a trio loop of its own. Ctrl-C stops the run, waits
    for what is in flight (if that takes a while, standard error has a line that names it), and raises
    KeyboardInterrupt.
    """
    with worker_waits():  # a work item may well run a graph of its own
        if _loop_is_running():
            return _Thread(_main, graph, inputs, scheduler, watch, live, named, wait_until_stopped).wait()
        return _bare(lambda: _in_trio(_main, graph, inputs, scheduler, watch, live, named, wait_until_stopped))


async def run_async(
    graph: Graph | nx.DiGraph[Any],
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    scheduler: Mapping[str, Any] | None = None,
    watch: Callable[[Run], None] | None = None,
    live: bool = False,
    **named: Any,
) -> Outputs:
    """As ``run``, awaited: from trio on its own loop, from asyncio with a trio loop in a thread beside it.

    Cancelling it stops the run and waits for what is in flight.
    """
    if trio.lowlevel.in_trio_run():
        return await _main(graph, inputs, scheduler, watch, live, named)
    return await _Thread(_main, graph, inputs, scheduler, watch, live, named).wait_in_asyncio()


async def _main(
    graph: Graph | nx.DiGraph[Any],
    inputs: Mapping[str, Any] | None,
    scheduler: Mapping[str, Any] | None,
    watch: Callable[[Run], None] | None,
    live: bool,
    named: dict[str, Any],
    stopped: Callable[[Run], Awaitable[None]] | None = None,
) -> Outputs:
    given = scheduler or {}
    traced = live or watch is not None or given.get("costs") is not None  # costs are learnt from traces
    options = {"streams": default_streams(), "trace": traced, **given}
    display = _display() if live else None
    async with open_scheduler(**options) as opened:
        started = opened.start(graph, inputs, **named)
        if display is not None:
            started.watch(display)
        try:
            return _with_run(await started, started) if options["trace"] else await started
        finally:
            interrupted = not started.done  # nothing else ends the wait for a run that has not ended
            started.cancel()
            if interrupted and stopped is not None:
                await stopped(started)
            if watch is not None:
                with trio.CancelScope(shield=True):  # the run ends by itself, having been told to
                    await started._finished.wait()
                watch(started)


def _display() -> Display | None:
    """Where to show the run; found before it starts, since what draws takes a while to import."""
    from plait.scheduler.watch import find_display  # noqa: PLC0415

    return find_display()


def _with_run(outputs: Outputs, run: Run) -> Outputs:
    """The outputs with their run: a copy, since the run holds its own, and a circle would keep the arrays alive."""
    result = Outputs(outputs)
    result.failed, result.missing, result.run = outputs.failed, outputs.missing, run
    return result


def _loop_is_running() -> bool:
    if trio.lowlevel.in_trio_run():
        return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _bare(call: Callable[[], Outputs]) -> Outputs:
    """A Ctrl-C that trio delivered inside a nursery comes out as itself, not in a group."""
    try:
        return call()
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from None
        raise


def _in_trio(main: Callable[..., Awaitable[Outputs]], *args: Any) -> Outputs:
    """As ``trio.run``, which keeps what its main task returns, in a cycle, until the collector comes."""
    found: list[Outputs] = []

    async def kept() -> None:
        found.append(await main(*args))

    trio.run(kept)
    return found.pop()


_TICK_S = 0.1


class _Thread:
    """A trio run in a thread of its own, joined before anyone goes on."""

    def __init__(self, main: Callable[..., Any], *args: Any) -> None:
        self._main = main
        self._args = args
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._result: Outputs | None = None
        self._error: BaseException | None = None
        self._done: Callable[[], object] | None = None
        self._context = contextvars.copy_context()  # so that a notebook shows what is displayed under its own cell
        self._carried = carried()  # device work of the caller's comes first, whichever thread starts the run
        self._thread = threading.Thread(target=self._context.run, args=(self._run,), name="plait-loop")

    async def _scoped(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            self._result = await self._main(*self._args)

    def _run(self) -> None:
        try:
            with self._carried:
                trio.run(self._scoped)
        except BaseException as error:
            self._error = error
        if self._done is not None:
            self._done()

    def _cancel(self) -> None:
        token = self._token
        if token is None:
            self._scope.cancel()
            return
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(self._scope.cancel)

    def _outcome(self) -> Outputs:
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def wait(self) -> Outputs:
        """Block until the run has ended; Ctrl-C stops it first, whatever handler the outer loop has for it."""
        interrupts: list[int] = []

        def on_interrupt(number: int, frame: object) -> None:
            interrupts.append(number)
            self._cancel()

        before = signal.getsignal(signal.SIGINT)
        takes_signals = threading.current_thread() is threading.main_thread() and callable(before)
        if takes_signals:
            signal.signal(signal.SIGINT, on_interrupt)
        self._thread.start()
        try:
            self._thread.join()
        finally:
            if takes_signals:
                signal.signal(signal.SIGINT, before)
        if interrupts:
            raise KeyboardInterrupt
        return self._outcome()

    async def wait_in_asyncio(self) -> Outputs:
        """Await the end of the run in asyncio; a cancel stops it first."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        self._done = functools.partial(loop.call_soon_threadsafe, ended.set)
        self._thread.start()
        try:
            while not ended.is_set():
                # A notebook's interrupt cancels us from a signal handler, which does not wake the loop: tick.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ended.wait(), _TICK_S)
        except asyncio.CancelledError:
            self._cancel()
            await ended.wait()
            self._thread.join()
            raise
        self._thread.join()
        return self._outcome()
