"""How fast the simulator is, what memory it takes, and how near it comes to real runs.

python benchmarks/simulate.py [--quick] [--check]

First: graphs of 1,000 to 100,000 items on 64 simulated devices, dry, with transfers between neighbours and a memory
limit, each in a process of its own; the largest once more with a limit that holds most items back for a while. CPU
seconds count, of recording, planning and running together, so a busy machine changes little; KB an item is what the
resident set grew by.

Then: the examples run here, and simulated with the times that their items took in that very run, and what lay between
them. Of several runs the
shortest was disturbed least, and counts; the others are shown.

``--check``: exit status 1 if the cost of an item grows by half or more from the least graph to the largest, an item of
the largest takes 3 KB or more, or a prediction is off by a tenth or more.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
import os
import subprocess
import sys
from time import process_time

import plait
from harness import Others, heading, load_example, print_others, resident_bytes
from plait.devices.sim import HostModel, Machine
from plait.scheduler import Run
from plait.scheduler.machine_costs import ItemTimes
from plait.scheduler.simulate import simulate

DEVICES = 64
WIDTH = 4  # items of a layer on each device
STREAMS = 2
ROOMY, TIGHT = 0.9, 20 << 20  # memory limits: of 80 GB; for twenty of the items' results


def nothing(*_: object) -> None:
    """Stands for work that is not called."""


def neighbours(items: int) -> plait.Graph:
    """Layers over all devices; each item reads two results of the layer before, one item in four a neighbour's."""
    graph = plait.Graph("neighbours")
    on = [graph.options(device=f"cuda:{number}", cost={"cuda": 1e-4}, nbytes=1 << 20) for number in range(DEVICES)]
    before = [[on[number].call(nothing) for _ in range(WIDTH)] for number in range(DEVICES)]
    step = 0
    while len(graph.items) < items:
        step += 1
        layer = []
        for number in range(DEVICES):
            mine, other = before[number], before[(number + 1 + step) % DEVICES]
            layer.append(
                [
                    on[number].call(nothing, mine[k], other[k] if k == step % WIDTH else mine[(k + 1) % WIDTH])
                    for k in range(WIDTH)
                ]
            )
        before = layer
    for number in range(DEVICES):
        graph.output(f"end{number}", before[number][0])
    return graph


def cluster() -> Machine:
    """The shipped machine with 64 of its devices."""
    machine = plait.machine("8xh100", dry=True)
    devices = tuple(dataclasses.replace(machine.devices[0], ordinal=number) for number in range(DEVICES))
    return dataclasses.replace(machine, name=f"{DEVICES}xh100", devices=devices)


def one(size: int, limit: float) -> dict[str, float]:
    """Simulate a graph of that size; figures of this process, which has done nothing before but a small one."""
    machine = cluster()
    simulate(neighbours(300), machine)
    gc.collect()
    held, began = resident_bytes(), process_time()
    graph = neighbours(size)
    found = simulate(graph, machine, memory_limit=limit)
    took, grown = process_time() - began, resident_bytes() - held
    count = len(graph.items)
    return {
        "items": count,
        "transfers": found.report.transfers,
        "cpu_s": took,
        "kilobytes": grown / count / 1024,
        "virtual_s": found.makespan_s,
        "over_bound": found.report.over_bound,
    }


def apart(size: int, tries: int, *more: str) -> dict[str, float]:
    """The cheapest of several tries, each in a process of its own."""
    command = [sys.executable, __file__, "--one", str(size), *more]
    found = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(tries)
    ]
    return min(found, key=lambda figures: figures["cpu_s"])


def scale(sizes: list[int]) -> tuple[float, float]:
    """Simulate graphs of such sizes; how much an item's cost grows from first to last, and KB an item of the last."""
    costs, kilobytes = [], 0.0
    for size in sizes:
        best = apart(size, 5 if size < 5_000 else 3 if size < 50_000 else 1)
        costs.append(best["cpu_s"] / best["items"])
        kilobytes = best["kilobytes"]
        print(
            f"{best['items']:7} items, {best['transfers']:6} transfers: {best['cpu_s']:6.2f} CPU s, "
            f"{costs[-1] * 1e6:5.0f} µs an item, {kilobytes:4.2f} KB an item; "
            f"{best['virtual_s'] * 1e3:.1f} ms of virtual time, {best['over_bound']:.3f} of the bound"
        )
    tight = apart(sizes[-1], 1, "--tight")
    print(f"{tight['items']:7} items where {TIGHT >> 20} MiB fit on a device: {tight['cpu_s']:6.2f} CPU s")
    growth = costs[-1] / costs[0]
    print(f"an item of the largest graph costs {growth:.2f} of one of the smallest")
    return growth, kilobytes


def predictions(rounds: int) -> list[float]:
    """Per example, the simulated time over the real one of the least disturbed run."""
    cholesky = load_example("cholesky")
    photo = load_example("photo_edges")
    picture = load_example("photo")["china"]()
    tile = 256
    found = [
        predict(
            f"cholesky, {size} by tiles of {tile}",
            rounds,
            functools.partial(cholesky["tiled_cholesky"], size, tile),
            {"a": cholesky["example_matrix"](size)},
        )
        for size in (1024, 1536, 2048, 3072)
    ]
    found.append(predict("photo_edges", rounds, lambda: photo["graph"](picture, os.devnull), {}))
    return found


def predict(name: str, rounds: int, build: object, inputs: dict[str, object]) -> float:
    """Run and simulate several times; the ratio of the shortest run."""
    assert callable(build)
    runs: list[Run] = []
    ratios = []
    for _ in range(rounds):
        graph = build()
        plait.run(graph, inputs, scheduler={"streams": STREAMS}, watch=runs.append)
        times = ItemTimes.from_trace(runs[-1].trace)
        host = HostModel(workers=STREAMS, overhead_s=times.gap_s)
        machine = plait.machine(Machine("this host", host, (), ()), dry=True, costs=times)
        simulated = simulate(graph, machine, streams=STREAMS).makespan_s
        ratios.append((runs[-1].trace.makespan_ns / 1e9, simulated))
    ratios.sort()
    real, simulated = ratios[0]
    others = ", ".join(f"{predicted / took:.2f}" for took, predicted in ratios[1:])
    print(f"{name}: {real * 1e3:.1f} ms real, {simulated * 1e3:.1f} ms simulated, ratio {simulated / real:.3f}", end="")
    print(f"; the longer runs: {others}" if others else "")
    return simulated / real


def main() -> int:
    """Print all figures; the exit status says with ``--check`` whether they are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="to 10,000 items, and few rounds")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a figure is not as it should be")
    parser.add_argument("--one", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--tight", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, TIGHT if options.tight else ROOMY)))
        return 0
    heading(f"simulation on {DEVICES} devices, and of the examples on {STREAMS} streams of this host")
    with Others() as others:
        began = process_time()
        growth, kilobytes = scale([1_000, 10_000] if options.quick else [1_000, 10_000, 100_000])
        ratios = predictions(3 if options.quick else 7)
        wall = process_time() - began
    print_others(others.seconds, wall)
    good = growth < 1.5 and kilobytes < 3 and all(abs(ratio - 1) < 0.1 for ratio in ratios)
    return 0 if good or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
