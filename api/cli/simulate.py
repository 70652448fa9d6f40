"""``plait simulate``: run the graph of a file on a simulated machine, in virtual time, and say how it went."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from plait.cli.load import load_graph, parse_inputs
from plait.devices.sim import Machine, machine, shipped
from plait.errors import PlaitError
from plait.graph import Graph
from plait.scheduler import timeline
from plait.scheduler.machine_costs import ItemTimes
from plait.scheduler.policies import POLICIES, find
from plait.scheduler.policies.cost_model import CostModel, is_cost_file
from plait.scheduler.seeing.units import format_bytes, format_seconds
from plait.scheduler.simulate import Simulated, simulate

PARTS = ("link", "compute", "memory", "latency")


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("simulate", help="run a graph on a simulated machine", description=__doc__)
    parser.add_argument("file", metavar="FILE[:NAME]", help="a Python file that defines a graph")
    parser.add_argument("--machine", required=True, metavar="M", help=f"a JSON file, or one of {', '.join(shipped())}")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE", help="a .npy file is loaded")
    parser.add_argument("--policy", default="critical-path", help=f"one of {', '.join(POLICIES)}")
    parser.add_argument("--compare", action="store_true", help="simulate with every policy, and tabulate")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default 0)")
    parser.add_argument("--noise", type=float, default=0.0, help="part of each item's time (default 0)")
    parser.add_argument("--streams", type=int, default=4, help="compute streams on each device (default 4)")
    parser.add_argument("--memory-limit", type=_limit, metavar="N", help="bytes, or a fraction of each device's memory")
    parser.add_argument("--costs", metavar="FILE.json", help="items take what this trace or cost file tells")
    parser.add_argument(
        "--what-if", action="append", default=[], metavar="PART=FACTOR", help=f"scale {', '.join(PARTS)}: link=0.5"
    )
    parser.add_argument("--run", action="store_true", help="call the functions too (default: count sizes only)")
    parser.add_argument("--trace", metavar="OUT.json", help="write a Chrome trace; Perfetto opens it")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Load, simulate, summarise."""
    if options.trace and not Path(options.trace).absolute().parent.is_dir():
        raise PlaitError(f"--trace {options.trace}: there is no folder {str(Path(options.trace).parent)!r}")
    if options.trace and Path(options.trace).is_dir():
        raise PlaitError(f"--trace {options.trace}: that is a folder; name a file")
    if options.trace and options.compare:
        raise PlaitError("--compare makes a table, not a trace: leave out --trace, or simulate one --policy")
    find(options.policy)
    graph, inputs = load_graph(options.file, parse_inputs(options.input))
    costs = _costs(options.costs) if options.costs else None
    chosen = machine(
        machine(options.machine).scaled(**_factors(options.what_if)),
        dry=not options.run,
        seed=options.seed,
        noise=options.noise,
        costs=costs,
    )
    if options.compare:
        print(compared(graph, chosen, inputs, options))
        return 0
    found = _simulated(graph, chosen, inputs, options, options.policy)
    if options.trace:
        found.trace.save(options.trace)
    print(f"{graph.name}: {found.report}")
    print(timeline(found.trace))
    if options.trace:
        print(f"  trace: {options.trace}")
    return 0


def _costs(path: str) -> ItemTimes | CostModel:
    """What a trace tells of its items, or what ``costs=`` of a scheduler has learnt of kernels."""
    return CostModel.load(path) if is_cost_file(path) else ItemTimes.from_file(path)


def compared(graph: Graph, chosen: Machine, inputs: Any, options: argparse.Namespace) -> str:
    """A line for each policy, the shortest makespan first."""
    found = [(policy, _simulated(graph, chosen, inputs, options, policy).report) for policy in POLICIES]
    width = max(len(policy) for policy, _ in found)
    lines = [f"{'policy':<{width}}  makespan  over bound   busy  moved      peak"]
    for policy, report in sorted(found, key=lambda each: (each[1].makespan_s, each[0])):
        devices = report.devices[1:] or report.devices
        busy = sum(use.busy for use in devices) / len(devices)
        lines.append(
            f"{policy:<{width}}  {format_seconds(report.makespan_s):>8}  {report.over_bound:10.3f}  {busy:5.1%}  "
            f"{format_bytes(sum(nbytes for _, nbytes in report.links)):>9}  "
            f"{format_bytes(max(use.peak_bytes for use in devices)):>9}"
        )
    return "\n".join(lines)


def _simulated(graph: Graph, chosen: Machine, inputs: Any, options: argparse.Namespace, policy: str) -> Simulated:
    return simulate(graph, chosen, inputs, policy=policy, streams=options.streams, memory_limit=options.memory_limit)


def _factors(texts: list[str]) -> dict[str, float]:
    factors: dict[str, float] = {}
    for text in texts:
        part, _, value = text.partition("=")
        if part not in PARTS:
            raise PlaitError(f"--what-if {text}: {part!r} is none of {', '.join(PARTS)}")
        try:
            factors[part] = float(value)
        except ValueError:
            raise PlaitError(f"--what-if {text}: {value!r} is not a number") from None
        if not 0 < factors[part] < float("inf"):
            raise PlaitError(f"--what-if {text}: the factor must be positive")
    return factors


def _limit(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of bytes nor a fraction, as in 0.5") from None
