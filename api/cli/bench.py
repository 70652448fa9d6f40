"""``plait bench``: what scheduling costs on this machine, as a ratio to a plain loop measured beside it."""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter
from typing import Any

import trio
from plait.scheduler import open_scheduler
from plait.testing.programs import layered


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("bench", help="measure scheduling cost", description=__doc__)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=11)
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Print microseconds per item of a layered graph of no-ops, three predecessors each."""
    count = options.layers * options.width
    loop, fresh, reused = trio.run(_measure, options.layers, options.width, options.repeat)
    print(f"layered graph, {options.layers} x {options.width} no-op items, median of {options.repeat}:")
    for name, seconds in (("plain loop", loop), ("record + compile + run", fresh), ("run of a reused plan", reused)):
        print(f"  {name:<24} {seconds / count * 1e6:8.3f} µs an item  ({seconds / loop:6.1f} x the loop)")
    return 0


async def _measure(layers: int, width: int, repeat: int) -> tuple[float, float, float]:
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    async with open_scheduler(devices="host", trace=False) as scheduler:
        plan = scheduler.compile(layered(layers, width))
        for _ in range(repeat):
            began = perf_counter()
            for _ in range(layers * width):
                _no_op(None, None, None)
            times[0].append(perf_counter() - began)
            began = perf_counter()
            await scheduler.run(layered(layers, width))
            times[1].append(perf_counter() - began)
            began = perf_counter()
            await scheduler.run(plan)
            times[2].append(perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1]), statistics.median(times[2])


def _no_op(*_: object) -> None:
    return None
