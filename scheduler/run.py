"""One execution of a plan: awaitable, cancellable, observable."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import trio
from plait.errors import PlaitError, RunCancelled, RunFailed, WorkError
from plait.graph import Buffer, BufferSlice
from plait.scheduler.attempts import Attempts, work_error
from plait.scheduler.bind import Packed
from plait.scheduler.lane_failure import LaneFailed
from plait.scheduler.memory import SpaceUse
from plait.scheduler.plan import Plan
from plait.scheduler.report import Report
from plait.scheduler.seeing.collect import build_trace
from plait.scheduler.seeing.nesting import CURRENT
from plait.scheduler.seeing.why import why
from plait.scheduler.state import DONE, FAILED, RUNNING, SKIPPED, WAITING, RunState
from plait.scheduler.trace import Trace
from plait.tracebacks import tell_ipython

if TYPE_CHECKING:
    from plait.graph.drawing import View
    from plait.scheduler.scheduler import Scheduler
    from plait.scheduler.watch import Display


class Outputs(dict[str, Any]):
    """A run's outputs by name. Under ``on_error="isolate"``: ``failed`` has the errors, ``missing`` names the rest.

    ``run`` is the run itself where ``plait.run`` was told to trace it: it displays itself in a notebook.
    """

    failed: tuple[WorkError, ...] = ()
    missing: tuple[str, ...] = ()
    run: Run | None = None

    def __missing__(self, name: str) -> Any:
        if name in self.missing:
            raise KeyError(f"output {name!r} was not computed, since items failed: see .failed")
        raise KeyError(_no_output(name, self))


@dataclass(frozen=True)
class Progress:
    """How far a run is: items by state, and ``fraction`` of all that have ended one way or another."""

    total: int
    done: int
    running: int
    failed: int
    skipped: int

    @property
    def fraction(self) -> float:
        return (self.done + self.failed + self.skipped) / self.total if self.total else 1.0


class Run:
    """A started plan. ``await run`` gives all outputs or raises RunFailed; it may be awaited any number of times.

    Cancelling a wait for it leaves the run alone; ``run.cancel()`` stops it.
    """

    def __init__(self, scheduler: Scheduler, plan: Plan, state: RunState, timeout: float | None) -> None:
        self.plan = plan
        self._scheduler = scheduler
        self._state = state
        self._timeout = timeout
        self._scope = trio.CancelScope()
        self._news = trio.Event()
        self._finished = trio.Event()
        self._watched: dict[str, trio.Event] = {}
        self._outputs = Outputs()
        self._ready: set[str] = set()  # outputs that are done and, under a memory limit, not taken yet
        self._undelivered: set[str] = set()  # outputs that could not be handed over
        self._error: RunFailed | None = None
        self._in_flight: list[int] = []
        self._observed = False
        self._cancelled = False
        self._trace: Trace | None = None
        self._span: Any = None
        self._watchdog = trio.CancelScope(shield=True)  # also what is drained after a cancel is watched

    def __repr__(self) -> str:
        return f"<Run of {self.plan.program.graph.name!r}: {self.progress}>"

    # ---- waiting ----------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, Any, Outputs]:
        return self._result().__await__()

    async def _result(self) -> Outputs:
        await self._finished.wait()
        self._observed = True
        self._scheduler.seen(self)
        if self._error is not None:
            raise self._error
        return self._outputs

    async def output(self, name: str) -> Any:
        """The output called ``name``, as soon as its last writer is done; RunFailed if it never will be."""
        positions = self.plan.output_positions
        if name not in positions:
            raise PlaitError(_no_output(name, positions))
        if name in self._ready:
            self._publish(name)
        if name not in self._outputs and not self._finished.is_set():
            await self._watched.setdefault(name, trio.Event()).wait()
        else:
            await trio.lowlevel.checkpoint()
        if name in self._outputs:
            return self._outputs[name]
        self._observed = True
        self._scheduler.seen(self)
        raise self._error or RunFailed(f"output {name!r} was not computed", self._outputs.failed)

    def cancel(self) -> None:
        """Stop the run: nothing more starts, what is in flight is waited for; ``await run`` raises RunCancelled."""
        if not self._finished.is_set():
            self._cancelled = True
            self._observed = True
            self._stop("the run was cancelled")
            self._scope.cancel()

    # ---- looking ----------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the run has ended, one way or another."""
        return self._finished.is_set()

    @property
    def progress(self) -> Progress:
        """How many items are done, running, failed, skipped."""
        state = self._state
        total = len(self.plan.calls)
        if not state.status:
            done, failed = min(state.cursor, total), int(state.failed_at >= 0)
            skipped = total - done - failed if self.done else 0
            return Progress(total, done, int(state.owned), failed, skipped)
        count = state.status.count
        skipped = count(SKIPPED) + (count(WAITING) if self.done else 0)
        return Progress(total, count(DONE), count(RUNNING), count(FAILED), skipped)

    def why(self, item: str) -> str:
        """In words, why the item called ``item`` has not started, or what became of it; at any time.

        What it waits for: other items, room in a group, memory, or a stream and who is on it.
        """
        position = self.plan.position(item)
        with self._scheduler.dispatcher.lock:
            return why(self._scheduler.dispatcher, self._state, position)

    @property
    def trace(self) -> Trace:
        """What happened, when and where; PlaitError while running, or if the scheduler was opened with trace=False."""
        state = self._state
        if not state.traced:
            raise PlaitError("this run was not traced: open the scheduler with trace=True")
        if not self.done:
            raise PlaitError("the trace is complete when the run has ended: await the run first")
        return self.finished_trace()

    def finished_trace(self) -> Trace:
        """``trace``, for who knows that there is one."""
        if self._trace is None:
            self._trace = build_trace(self.plan, self._state, tuple(self._scheduler.stream_names))
        return self._trace

    def report(self) -> Report:
        """Time against bounds, streams and how busy, critical path, memory, and what to change; needs a trace."""
        return self.trace.report()

    @property
    def memory(self) -> dict[str, SpaceUse]:
        """Per memory space with a limit, what the run holds and held at most, and what was moved; bytes."""
        memory = self._state.memory
        return {} if memory is None else memory.uses()

    @property
    def errors(self) -> tuple[WorkError, ...]:
        """What has failed, once the run has ended."""
        if self._error is None:
            return self._outputs.failed
        return tuple(error for error in self._error.exceptions if isinstance(error, WorkError))

    def show(self, *, color: str | None = None, fold: bool | Collection[str] | None = None) -> View:
        """The run as a page for a notebook cell or ``.save(path)``: timeline, what took longest, the graph by state.

        ``color`` as in ``Graph.show``, also ``"stream"`` (where it ran) and ``"state"``; ``fold`` is for the graph.
        While the run goes on, or without a trace, it is the graph alone.
        """
        from plait.scheduler.views import run_view  # noqa: PLC0415  views imports this module's neighbours

        return run_view(self, color, fold)

    def watch(self, display: Display | None = None) -> None:
        """Show the run while it goes on and what became of it; returns at once.

        In a notebook a picture in the cell, on a terminal a line on standard error, elsewhere nothing. Looking takes
        at most a hundredth of the time. ``display`` is for tests and for other front ends.
        """
        from plait.scheduler.watch import find_display, watch_run  # noqa: PLC0415  drawing, only when wanted

        chosen = display or find_display()
        if chosen is not None:
            self._scheduler._nursery.start_soon(watch_run, self, chosen, name="watch")

    def _repr_html_(self) -> str:
        return self.show().html

    def _repr_svg_(self) -> str:
        return self.show().svg

    # ---- driven by the scheduler ------------------------------------------------------------------------------

    async def _drive(self) -> None:
        """The run's own task: starts async items, publishes outputs, and leaves nothing running behind it."""
        dispatcher, state = self._scheduler.dispatcher, self._state
        deadline = math.inf if self._timeout is None else trio.current_time() + self._timeout
        self._scope.deadline = deadline
        timed_out = False
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    dispatcher.submit(state)
                    while not dispatcher.is_over(state) and not state.stopping:
                        await self._news.wait()
                        self._news = trio.Event()
                        items, outputs = dispatcher.take_loop_items(state)
                        for position in items:
                            nursery.start_soon(self._loop_item, position, name=self.plan.item(position).name)
                        for name in outputs:
                            if state.memory is not None and name not in self._watched:
                                self._ready.add(name)  # as long as nobody has it, it can make room
                            else:
                                self._publish(name)
                    nursery.cancel_scope.cancel()
            timed_out = self._scope.cancelled_caught and not self._cancelled
        except BaseException:
            self._cancelled = True
            raise
        finally:
            if not dispatcher.is_over(state):
                self._stop("the run timed out" if timed_out else "the run was cancelled")
            with trio.CancelScope(shield=True):  # a host item cannot be interrupted, and its buffers are in use
                while not dispatcher.is_over(state):
                    await self._news.wait()
                    self._news = trio.Event()
            self._end(timed_out)

    def _stop(self, reason: str) -> None:
        """Start nothing more, and remember what was in flight when that was first said."""
        state = self._state
        if not state.stopping:
            self._in_flight = [place for place in self._unfinished() if state.status_of(place) == RUNNING]
        self._scheduler.dispatcher.stop(state, reason)

    async def _loop_item(self, position: int) -> None:
        """Await one ``async def`` item on this loop."""
        state = self._state
        CURRENT.set((state, position))
        call, values = self.plan.calls[position], self._state.values
        dispatcher = self._scheduler.dispatcher
        started = dispatcher.now_ns()
        error: BaseException | None = None
        try:
            args = self.plan.getters[position](values)
            if isinstance(call, Packed):
                await self._attempt(call, *args)
            else:
                values[self.plan.outs[position]] = await call(*args)
        except Exception as raised:  # whatever user code raises is the item's failure
            error = raised
        except BaseException:
            dispatcher.abandon_loop_item(state, position)
            raise
        if state.traced:
            state.started[position], state.finished[position] = started, dispatcher.now_ns()
            state.lanes[position] = dispatcher.host_lanes
            state.measure_slot(self.plan.outs[position])
        dispatcher.settle_loop_item(state, position, error)

    async def _attempt(self, packed: Packed, values: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        options = packed.item.options
        timeout = math.inf if options.timeout is None else options.timeout
        causes: list[Exception] = []
        saved = packed.save(values) if options.retries else []
        while True:
            try:
                with trio.fail_after(timeout):
                    result = await packed.function(*args, **kwargs)
            except trio.TooSlowError:
                causes.append(TimeoutError(f"took longer than its timeout of {timeout} s"))
            except Exception as error:
                causes.append(error)
            else:
                packed.keep(values, args, kwargs, result)
                return
            if len(causes) > options.retries or self._state.stopping:
                raise Attempts(causes) from causes[-1]
            packed.restore(saved)

    def _publish(self, name: str) -> None:
        if name in self._outputs or name in self._undelivered:
            return
        self._ready.discard(name)
        try:
            self._outputs[name] = self._taken(self.plan.program.outputs[name])
        except Exception as error:  # a slice of what is no array, no memory to map or copy what was moved out
            failure = PlaitError(f"output {name!r} could not be handed over: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._undelivered.add(name)
            self._scheduler.dispatcher.undelivered(self._state, failure)
            return
        if name in self._watched:
            self._watched[name].set()

    def _taken(self, value: Buffer | BufferSlice) -> Any:
        if not isinstance(value, BufferSlice):
            return self._value(value.index)
        result = self._value(value.buffer.index)
        for key in value.keys:
            result = result[key]
        return result.copy() if isinstance(result, np.ndarray) else result

    def _value(self, slot: int) -> Any:
        """The value of a buffer's slot, for the caller."""
        if self._state.memory is None:
            return self._state.values[slot]
        return self._scheduler.dispatcher.hand_over(self._state, slot)

    def _unfinished(self) -> list[int]:
        state = self._state
        if state.status:
            return [place for place, status in enumerate(state.status) if status in (WAITING, RUNNING, SKIPPED)]
        return [place for place in range(state.cursor, len(self.plan.calls)) if place != state.failed_at]

    def _end(self, timed_out: bool) -> None:
        """Settle the outcome, let go of every value, wake who waits."""
        state, plan = self._state, self.plan
        stopped_short = (self._cancelled or timed_out) and (self._in_flight or self._unfinished() or not state.prepared)
        if not stopped_short and (state.isolate or not state.errors):
            for output, writers in plan.output_positions.items():
                if all(state.status_of(writer) == DONE for writer in writers):
                    self._publish(output)
        device, streams = plan.device, self._scheduler.stream_names
        errors = [
            work_error(
                plan.item(position),
                error,
                plan.place(position),
                streams[lane] if lane >= 0 else None,
                state.failed_inputs.get(position, ()),
            )
            if position >= 0
            else _unplaced_error(error, device)
            for position, error, lane in state.errors
        ]
        name = plan.program.graph.name
        unfinished = self._unfinished() if errors or state.stopping else []
        stopped = tuple(plan.item(position).name for position in unfinished)
        if self._cancelled or timed_out:
            why = f"the run timed out after {self._timeout} s" if timed_out else "the run was cancelled"
            cause: Exception = TimeoutError(why) if timed_out else RuntimeError(why)
            for position in self._in_flight or unfinished[:1]:
                if all(position != failed for failed, _, _ in state.errors):
                    errors.append(work_error(plan.item(position), cause, plan.place(position), None))
            if not errors and not state.prepared:
                errors.append(WorkError(f"no item had started: {why}", item="(none)", device=device, causes=[cause]))
            if errors:
                kind = RunFailed if timed_out else RunCancelled
                self._fail(kind(f"run of graph {name!r}: {why}", errors), stopped)
        elif errors and not state.isolate:
            self._fail(RunFailed(f"run of graph {name!r} failed", errors), stopped)
        if self._error is None:
            self._outputs.failed = tuple(errors)
            self._outputs.missing = tuple(output for output in plan.output_positions if output not in self._outputs)
        self._scheduler.dispatcher.recycle(state)
        state.values.clear()
        self._scheduler.dispatcher.give_memory_back(state)
        state.errors.clear()  # a traceback holds its frames, and those hold values
        plan.program.graph.running -= 1
        self._scheduler.forget(self)
        self._scheduler.observer.ended(self)
        self._finished.set()
        for event in self._watched.values():
            event.set()

    def _fail(self, error: RunFailed, stopped: tuple[str, ...]) -> None:
        error.stopped = stopped
        error.__cause__ = next(
            (each.__cause__ for _, each, _ in self._state.errors if isinstance(each, LaneFailed)), None
        )
        self._error = error
        tell_ipython(RunFailed)


def _no_output(name: str, known: Iterable[str]) -> str:
    """What to do about an output that there is not."""
    names = ", ".join(known) or "none"
    return f"the graph has no output {name!r} (its outputs: {names}): name one with g.output({name!r}, value)"


def _unplaced_error(error: BaseException, device: str) -> WorkError:
    """The WorkError of what is no item's failure."""
    if isinstance(error, LaneFailed):
        return WorkError(
            str(error), item=error.item or "(none)", device=error.device, stream=error.stream, causes=[error]
        )
    return WorkError(str(error), item="(buffers)", device=device, causes=[error])
