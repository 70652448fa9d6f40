"""What watching a run costs: the same runs, watched and not, in turn.

    python benchmarks/watch.py [--quick]

Three programs: items of a millisecond, NumPy on both cores, and (not with --quick) tiny items; watched as a notebook
does it (a picture of the graph, and the message that carries it as JSON) and as a terminal does it. The ratio is that
of the watched run's own time (from its start to its last item) to the unwatched one's, a median over pairs, traced in
both. Beside it, which other processes disturb less: how much more the loop's thread computed, as a part of the run.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
from collections.abc import Callable
from time import perf_counter, sleep, thread_time
from typing import Any

import numpy as np
import plait
import trio
from harness import Others, heading, median, print_others
from plait.scheduler.terminal import LineDisplay
from plait.scheduler.watch import Display, NotebookDisplay


class Sink:
    """What a kernel does with an output, short of sending it."""

    frames = 0

    def __call__(self, bundle: dict[str, str], raw: bool, display_id: bool = True) -> Sink:
        json.dumps({"data": bundle, "metadata": {}}).encode()
        self.frames += 1
        return self

    def update(self, bundle: dict[str, str], raw: bool) -> None:
        """The next frame."""
        self(bundle, raw)


def tiny(seconds: float) -> plait.Graph:
    """Layers of no-ops, three predecessors each, for about that long."""
    g = plait.Graph("tiny")
    width, layers = 100, max(2, int(min(seconds, 0.4) / 0.6e-6 / 100))  # recording takes ten times as long
    before = [g.call(int) for _ in range(width)]
    for _ in range(layers - 1):
        before = [g.call(_no_op, *(before[(k + d) % width] for d in range(3))) for k in range(width)]
    return g


def steady(seconds: float) -> plait.Graph:
    """Items that wait for a millisecond, in chains."""
    g = plait.Graph("steady")
    for _ in range(20):
        value = g.call(_wait, 0)
        for _ in range(int(seconds * 2 / 1.1e-3 / 20)):
            value = g.call(_wait, value)
    return g


def arrays(seconds: float) -> plait.Graph:
    """NumPy on arrays of a quarter of a million numbers."""
    g = plait.Graph("arrays")
    x = g.constant(np.random.default_rng(0).standard_normal(250_000))
    for _ in range(int(seconds * 2 / 4e-3)):
        g.call(np.sum, g.call(np.exp, g.call(np.sin, x)))
    return g


def _no_op(*_: object) -> int:
    return 0


def _wait(_: object) -> int:
    sleep(1e-3)
    return 0


class Until:
    """A display that says when it has shown the end; that is after the run, and would weigh on the next one."""

    def __init__(self, inner: Display) -> None:
        self._inner = inner
        self.finished = trio.Event()
        self.update = inner.update

    def finish(self, run: plait.Run, snapshot: Any) -> None:
        """Show the end."""
        self._inner.finish(run, snapshot)
        self.finished.set()


async def one(plan: Any, scheduler: plait.Scheduler, display: Display | None) -> tuple[float, float]:
    """Seconds from start to the last item's end, and seconds that this thread, the loop's, computed meanwhile."""
    until = None if display is None else Until(display)
    gc.collect()
    began, computed = perf_counter(), thread_time()
    run = scheduler.start(plan)
    if until is not None:
        run.watch(until)
    await run
    seconds, computed = perf_counter() - began, thread_time() - computed
    if until is not None:
        await until.finished.wait()
    return seconds, computed


async def compare(build: Callable[[float], plait.Graph], seconds: float, pairs: int) -> dict[str, tuple[float, float]]:
    """By display, the ratio of watched to unwatched time, and the part of it that looking took."""
    async with plait.open_scheduler(devices="host", streams=2, trace=True) as scheduler:
        plan = scheduler.compile(build(seconds))
        await one(plan, scheduler, None)
        measured: dict[str, list[tuple[float, float]]] = {"notebook": [], "terminal": []}
        for pair in range(pairs):
            for name, found in measured.items():
                times = {}
                for watched in (False, True) if pair % 2 else (True, False):
                    times[watched] = await one(plan, scheduler, _display(name) if watched else None)
                (watched_s, more), (plain_s, less) = times[True], times[False]
                found.append((watched_s / plain_s, (more - less) / watched_s))
    return {
        name: (median([ratio for ratio, _ in found]), median([part for _, part in found]))
        for name, found in measured.items()
    }


def _display(name: str) -> Display:
    return NotebookDisplay(Sink()) if name == "notebook" else LineDisplay(io.StringIO())


def main() -> None:
    """Print a ratio for each program and display."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="runs of half a second, three pairs")
    quick = parser.parse_args().quick
    seconds, pairs = (0.5, 3) if quick else (3.0, 5)
    heading(f"a watched run over an unwatched one, median of {pairs} pairs, runs of about {seconds:g} s")
    began = perf_counter()
    with Others() as others:
        for build in (steady, arrays) if quick else (steady, arrays, tiny):
            found = trio.run(compare, build, seconds, pairs)
            shown = ", ".join(f"{name} {ratio:6.3f} (looking {part:.2%})" for name, (ratio, part) in found.items())
            print(f"  {build.__name__:<8} {shown}", flush=True)
    print_others(others.seconds, perf_counter() - began)


if __name__ == "__main__":
    main()
