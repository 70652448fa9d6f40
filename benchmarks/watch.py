"""What watching a run costs: the same runs, watched and not, in turn.

    python benchmarks/watch.py [--quick]

Three programs: tiny items, items of a millisecond, and NumPy on both cores; watched as a notebook does it (a picture
of the graph, and the message that carries it as JSON) and as a terminal does it. The ratio is that of the watched
run's own time (from its start to its last item) to the unwatched one's; a median over pairs, traced in both.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
from collections.abc import Callable
from time import perf_counter, sleep
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
    width, layers = 100, max(2, int(seconds / 0.6e-6 / 100))
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


async def one(plan: Any, scheduler: plait.Scheduler, display: Display | None) -> float:
    """Seconds from start to the last item's end."""
    until = None if display is None else Until(display)
    gc.collect()
    began = perf_counter()
    run = scheduler.start(plan)
    if until is not None:
        run.watch(until)
    await run
    seconds = perf_counter() - began
    if until is not None:
        await until.finished.wait()
    return seconds


async def compare(build: Callable[[float], plait.Graph], seconds: float, pairs: int) -> dict[str, float]:
    """The ratio of watched to unwatched time by display."""
    async with plait.open_scheduler(devices="host", streams=2, trace=True) as scheduler:
        plan = scheduler.compile(build(seconds))
        await one(plan, scheduler, None)
        ratios: dict[str, list[float]] = {"notebook": [], "terminal": []}
        for pair in range(pairs):
            for name, found in ratios.items():
                times = {}
                for watched in (False, True) if pair % 2 else (True, False):
                    times[watched] = await one(plan, scheduler, _display(name) if watched else None)
                found.append(times[True] / times[False])
    return {name: median(found) for name, found in ratios.items()}


def _display(name: str) -> Display:
    return NotebookDisplay(Sink()) if name == "notebook" else LineDisplay(io.StringIO())


def main() -> None:
    """Print a ratio for each program and display."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="runs of half a second, three pairs")
    quick = parser.parse_args().quick
    seconds, pairs = (0.5, 3) if quick else (4.0, 7)
    heading(f"a watched run over an unwatched one, median of {pairs} pairs, runs of about {seconds:g} s")
    began = perf_counter()
    with Others() as others:
        for build in (tiny, steady, arrays):
            found = trio.run(compare, build, seconds, pairs)
            shown = ", ".join(f"{name} {ratio:6.3f}" for name, ratio in found.items())
            print(f"  {build.__name__:<8} {shown}", flush=True)
    print_others(others.seconds, perf_counter() - began)


if __name__ == "__main__":
    main()
