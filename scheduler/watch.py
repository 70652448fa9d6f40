"""Watching a run: what is done, how fast, what is left; in a notebook as a picture, on a terminal as a line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import trio
from plait.graph.drawing.picture import draw
from plait.graph.drawing.scene import Arranged, arrange, arrange_overview
from plait.graph.drawing.svg import STATES, escape, style_sheet
from plait.scheduler.report import format_bytes, format_seconds
from plait.scheduler.state import DONE
from plait.scheduler.views import plan_scene, run_states
from plait.tracebacks import ipython_shell

if TYPE_CHECKING:
    from plait.scheduler.run import Progress, Run

EVERY_S, MOST_SHARE = 0.25, 0.01  # a look each quarter of a second, but never more than this share of the time
PICTURE_AFTER_S = 1.0  # laying out takes some ten milliseconds, which a short run would feel
MOST_LOOKED_AT = 4096  # values, to tell how much memory they take up
MOST_SHOWN = 100_000  # items of a run that is drawn without having been asked for
MOST_LIVE = 150  # with more items a live picture shows an overview


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment. ``rate`` is items per second since it began, ``left_s`` the seconds that are left if it goes
    on like this (None before anything is done), ``held_bytes`` what the values it holds take up, ``limit_bytes`` how
    much they may (None without a limit)."""

    name: str
    progress: Progress
    elapsed_s: float
    rate: float
    left_s: float | None
    held_bytes: int
    limit_bytes: int | None = None

    def words(self) -> list[str]:
        """Count, rate, time left, memory."""
        progress = self.progress
        parts = [f"{progress.done}/{progress.total}"]
        parts += [f"{n} {word}" for n, word in ((progress.failed, "failed"), (progress.skipped, "skipped")) if n]
        parts.append(f"{self.rate:.3g} items/s")
        if progress.fraction < 1 and self.left_s is not None:
            parts.append(f"{format_seconds(self.left_s)} left")
        else:
            parts.append(format_seconds(self.elapsed_s))
        limit = "" if self.limit_bytes is None else f" of {format_bytes(self.limit_bytes)}"
        return [*parts, f"{format_bytes(self.held_bytes)}{limit}"]


class Display(Protocol):
    """Where a watched run is shown."""

    def update(self, run: Run, snapshot: Snapshot) -> None:
        """The run goes on."""

    def finish(self, run: Run, snapshot: Snapshot) -> None:
        """It has ended."""


def take_snapshot(run: Run, began: float) -> Snapshot:
    """Look at a run, without a lock: every figure is true of some moment just before now."""
    state, plan = run._state, run.plan
    progress = run.progress
    elapsed = max(1e-9, perf_counter() - began)
    if state.status:
        done = float(plan.cost[np.frombuffer(bytes(state.status), dtype=np.uint8) == DONE].sum())
    else:
        done = float(plan.cost[: state.cursor].sum())
    total = float(plan.cost.sum())
    left = elapsed * (total - done) / done if done > 0 else None
    name, rate = plan.program.graph.name, progress.done / elapsed
    limited = [use for use in run.memory.values() if use.limit is not None]
    if limited:
        held, most = sum(use.in_use for use in limited), sum(use.limit or 0 for use in limited)
        return Snapshot(name, progress, elapsed, rate, left, held, most)
    return Snapshot(name, progress, elapsed, rate, left, _held(state.values))


def _held(values: list[Any]) -> int:
    """Bytes of the arrays among ``values``; from a sample where there are many, since a long look would hold up the
    items, which need the interpreter too."""
    step = max(1, len(values) // MOST_LOOKED_AT)
    held = {id(value): getattr(value, "nbytes", 0) for value in values[::step]}
    return step * sum(size for size in held.values() if isinstance(size, int))


def find_display() -> Display | None:
    """The notebook's if this is one, else the terminal that standard error is, else None: a file wants no progress."""
    if getattr(ipython_shell(), "kernel", None) is not None:
        return NotebookDisplay()
    if sys.stderr is not None and sys.stderr.isatty():
        from plait.scheduler.terminal import terminal_display  # noqa: PLC0415  only where there is a terminal

        return terminal_display(sys.stderr)
    return None


async def watch_run(run: Run, display: Display) -> None:
    """Show ``run`` until it has ended, and how it ended.

    Not cancelled by what cancels the run, whose end it must still show; a run always ends.
    """
    began = perf_counter()
    pause = EVERY_S
    with trio.CancelScope(shield=True):
        while True:
            with trio.move_on_after(pause):
                await run._finished.wait()
            if run.done:
                break
            looked = perf_counter()
            display.update(run, take_snapshot(run, began))
            pause = max(EVERY_S, (perf_counter() - looked) / MOST_SHARE)
        display.finish(run, take_snapshot(run, began))


class NotebookDisplay:
    """An output of the cell: a bar and figures, the graph by state if the run is long, at last the run itself."""

    def __init__(self, publish: Any = None) -> None:
        self._publish = publish
        self._handle: Any = None
        self._arranged: Arranged | None = None

    def update(self, run: Run, snapshot: Snapshot) -> None:
        """Show the run as it stands."""
        svg = ""
        if snapshot.elapsed_s >= PICTURE_AFTER_S:
            if self._arranged is None:
                scene = plan_scene(run.plan, f"run of {snapshot.name}")
                few = len(scene.items) <= MOST_LIVE
                self._arranged = arrange(scene) if few else arrange_overview(scene)
            svg = draw(self._arranged, run_states(run), "state", STATES)
        self._show(live_page(snapshot, svg), " ".join([snapshot.name, *snapshot.words()]))

    def finish(self, run: Run, snapshot: Snapshot) -> None:
        """Leave the finished run in the cell; of a very large one the figures, since its picture takes a while."""
        large = len(run.plan.work) > MOST_SHOWN
        self._show(live_page(snapshot, "") if large else run._repr_html_(), repr(run))

    def _show(self, html: str, text: str) -> None:
        bundle = {"text/html": html, "text/plain": text}
        if self._handle is not None:
            self._handle.update(bundle, raw=True)
            return
        if self._publish is None:
            from IPython.display import display  # noqa: PLC0415  there only in a notebook

            self._publish = display
        self._handle = self._publish(bundle, raw=True, display_id=True)


def live_page(snapshot: Snapshot, svg: str) -> str:
    """One frame of the live view; it has no script, since a new one replaces it soon."""
    share = f"{snapshot.progress.fraction:.1%}"
    bar = f'<div class="plait-progress"><div class="plait-progressed" style="width:{share}"></div></div>'
    words = escape(" · ".join(snapshot.words()))
    return (
        f'<div class="plait-view plait-live"><style>{style_sheet()}</style><p><b>{escape(snapshot.name)}</b> '
        f"{words}</p>{bar}{svg}</div>"
    )
