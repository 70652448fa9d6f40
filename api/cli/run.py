"""``plait run``: run the graph of a file, with its progress on a terminal, and print a short summary."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from plait.cli.load import load_graph, parse_inputs
from plait.errors import PlaitError
from plait.front import run
from plait.scheduler import Run, timeline
from plait.scheduler.explain import NO_OUTPUTS
from plait.scheduler.policies import DEFAULT, POLICIES


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("run", help="run the graph of a file", description=__doc__)
    parser.add_argument("file", metavar="FILE[:NAME]", help="a Python file that defines a graph")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE", help="a .npy file is loaded")
    parser.add_argument("--trace", metavar="OUT.json", help="write a Chrome trace; Perfetto opens it")
    parser.add_argument("--save", metavar="OUT.html", help="save the run as a page (.svg: its timeline alone)")
    parser.add_argument("--streams", type=int, help="compute streams (default: one per usable core, at most 8)")
    parser.add_argument(
        "--policy", default=DEFAULT, help=f"{', '.join(POLICIES)}, or ORDER+PLACEMENT (default {DEFAULT})"
    )
    parser.add_argument(
        "--costs", metavar="COSTS.json", help="what kernels took before; read, and written after the run"
    )
    parser.add_argument(
        "--deadline", type=float, help="seconds after which the run should be done; refused if it cannot"
    )
    parser.add_argument("--timeout", type=float, help="seconds after which the run is stopped")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Load, run, summarise."""
    for name in ("trace", "save"):
        path = getattr(options, name)
        if path and not Path(path).absolute().parent.is_dir():
            raise PlaitError(f"--{name} {path}: there is no folder {str(Path(path).parent)!r}")
    graph, inputs = load_graph(options.file, parse_inputs(options.input))
    scheduler: dict[str, Any] = {"policy": options.policy}
    if options.costs is not None:
        scheduler["costs"] = options.costs
    if options.streams is not None:
        scheduler["streams"] = options.streams
    limits = {"timeout": options.timeout, "deadline": options.deadline}
    ended: list[Run] = []
    try:
        outputs = run(graph, inputs, scheduler=scheduler, watch=ended.append, live=True, **limits)
    finally:
        if ended and options.trace:
            ended[0].trace.save(options.trace)
        if ended and options.save:
            ended[0].show().save(options.save)
    print(f"{graph.name}: {ended[0].report()}")
    print(timeline(ended[0].trace))
    if not graph.outputs and any(item.outputs for item in graph.items):
        print(f"  {NO_OUTPUTS}")
    for name, value in outputs.items():
        print(f"  output {name}: {describe(value)}")
    if options.trace:
        print(f"  trace: {options.trace}")
    return 0


def describe(value: Any) -> str:
    """A value in one line: arrays by shape, dtype and range, anything else by its text."""
    if isinstance(value, np.ndarray):
        text = f"array {value.shape} {value.dtype}"
        if value.size and value.dtype.kind in "iuf":
            text += f", {value.min():.4g} to {value.max():.4g}"
        return text
    text = str(value)
    return text if len(text) <= 200 else text[:197] + "..."
