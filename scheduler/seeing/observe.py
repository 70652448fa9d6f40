"""Who is told when runs begin and end: the log, telemetry, the watchdog; by the options of ``open_scheduler``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import trio
from plait.errors import PlanError
from plait.scheduler.seeing.logs import log
from plait.scheduler.seeing.telemetry import find_telemetry
from plait.scheduler.seeing.watchdog import watch_progress

if TYPE_CHECKING:
    from plait.devices import Device
    from plait.scheduler.run import Run
    from plait.scheduler.scheduler import Scheduler


class Observer:
    """What a scheduler tells of its runs, and to whom."""

    def __init__(self, stall_after: float | None = None, telemetry: bool | str = False) -> None:
        if stall_after is not None and not stall_after > 0:
            raise PlanError(f"stall_after must be a positive number of seconds or None, not {stall_after!r}")
        self.devices: Callable[[], Iterable[Device]] = tuple
        self._stall_after = stall_after
        self._telemetry = find_telemetry(telemetry, self._devices_now)

    def _devices_now(self) -> Iterable[Device]:
        return self.devices()

    def compiled(self, graph: str, items: int, seconds: float) -> None:
        """A plan was made."""
        log.debug("compiled graph %r: %d items in %.6f s", graph, items, seconds)
        if self._telemetry is not None:
            self._telemetry.compiled(graph, seconds)

    def began(self, run: Run, scheduler: Scheduler, nursery: trio.Nursery) -> None:
        """A run begins; on the trio thread."""
        name, state = run.plan.program.graph.name, run._state
        log.debug("run of graph %r begins: %d items, priority %d", name, len(run.plan.calls), state.priority)
        span: Any = None if self._telemetry is None else self._telemetry.began(run)
        run._span = span
        if self._stall_after is not None:
            nursery.start_soon(
                watch_progress,
                scheduler.dispatcher,
                state,
                self._stall_after,
                run._watchdog,
                name=f"watchdog of {name}",
            )

    def ended(self, run: Run) -> None:
        """A run has ended, one way or another; on the trio thread."""
        name, state = run.plan.program.graph.name, run._state
        run._watchdog.cancel()
        if run._error is None:
            log.debug("run of graph %r ended after %.6f s", name, (state.end_ns - state.begin_ns) / 1e9)
        elif run._cancelled:
            log.info("%s", run._error.message)
        else:  # as text: a record that is kept must not keep a traceback, whose frames hold values
            log.error("%s", str(run._error))
        for error in run._outputs.failed:
            log.error("%s", str(error))
        if self._telemetry is not None:
            self._telemetry.ended(run, run._span)

    def close(self) -> None:
        """Tell nothing more."""
        if self._telemetry is not None:
            self._telemetry.close()
