"""``plait show``: the graph of a file as a picture, text or Mermaid, and its plan in words."""

from __future__ import annotations

import argparse
from typing import Any

from plait.cli.load import load_graph, parse_inputs
from plait.devices import device
from plait.graph.draw import to_mermaid
from plait.scheduler import compile_plan, default_streams


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("show", help="show a graph and its plan", description=__doc__)
    parser.add_argument("file", metavar="FILE[:NAME]")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--mermaid", action="store_true", help="print the graph as a Mermaid flowchart")
    parser.add_argument("--save", metavar="OUT.html", help="save the graph as a page (.svg: the picture alone)")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Print or save the graph, or print its plan; nothing runs."""
    graph, _ = load_graph(options.file, parse_inputs(options.input))
    program = graph.program()
    if options.save:
        graph.show().save(options.save)
    elif options.mermaid:
        print(to_mermaid(program))
    else:
        print(compile_plan(program, (device("host"),), (default_streams(), 2), "critical-path").explain())
    return 0
