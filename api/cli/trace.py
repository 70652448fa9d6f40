"""``plait trace``: what a saved trace says, or how two of them differ."""

from __future__ import annotations

import argparse
from typing import Any

from plait.errors import PlaitError
from plait.scheduler import Trace, compare, timeline


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("trace", help="summarise a saved trace, or compare two", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="one trace: its report; two: what got slower and why")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Load, and print the report or the comparison."""
    if len(options.files) > 2:
        raise PlaitError(f"plait trace takes one file, or two to compare, not {len(options.files)}")
    traces = [Trace.load(file) for file in options.files]
    if len(traces) == 2:
        print(f"{traces[1].graph}: {compare(*traces)}")
        return 0
    print(f"{traces[0].graph}: {traces[0].report()}")
    print(timeline(traces[0]))
    return 0
