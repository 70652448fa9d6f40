"""Graphs with costs on machines that schedulers are judged by: tiled factorizations, random and regular ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from plait.scheduler.policies import Problem

DATA = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class Instance:
    """A problem and where it comes from; ``speeds`` and ``work`` are set where cost is work over speed."""

    name: str
    family: str
    problem: Problem
    work: list[float] | None = None
    speeds: list[float] | None = None


class _Recorder:
    """Items in program order, each reading and writing tiles; edges are the flow of tiles."""

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.edges: dict[tuple[int, int], int] = {}
        self._writer: dict[Any, int] = {}

    def call(self, kernel: str, reads: list[Any], writes: list[Any]) -> None:
        item = len(self.kernels)
        self.kernels.append(kernel)
        for tile in [*reads, *writes]:
            if tile in self._writer:
                edge = (self._writer[tile], item)
                self.edges[edge] = self.edges.get(edge, 0) + 1
        for tile in writes:
            self._writer[tile] = item


def cholesky(tiles: int) -> _Recorder:
    """Right-looking tiled Cholesky factorization."""
    record = _Recorder()
    for k in range(tiles):
        record.call("potrf", [], [(k, k)])
        for i in range(k + 1, tiles):
            record.call("trsm", [(k, k)], [(i, k)])
        for i in range(k + 1, tiles):
            record.call("syrk", [(i, k)], [(i, i)])
            for j in range(k + 1, i):
                record.call("gemm", [(i, k), (j, k)], [(i, j)])
    return record


def lu(tiles: int) -> _Recorder:
    """Right-looking tiled LU factorization without pivoting between tiles."""
    record = _Recorder()
    for k in range(tiles):
        record.call("getrf", [], [(k, k)])
        for i in range(k + 1, tiles):
            record.call("trsm_ll", [(k, k)], [(k, i)])
            record.call("trsm_ru", [(k, k)], [(i, k)])
        for i in range(k + 1, tiles):
            for j in range(k + 1, tiles):
                record.call("gemm", [(i, k), (k, j)], [(i, j)])
    return record


def qr(tiles: int) -> _Recorder:
    """Tiled QR factorization with a flat tree (Buttari, Langou, Kurzak, Dongarra 2009)."""
    record = _Recorder()
    for k in range(tiles):
        record.call("geqrt", [], [(k, k), ("t", k, k)])
        for j in range(k + 1, tiles):
            record.call("ormqr", [(k, k), ("t", k, k)], [(k, j)])
        for i in range(k + 1, tiles):
            record.call("tsqrt", [], [(k, k), (i, k), ("t", i, k)])
            for j in range(k + 1, tiles):
                record.call("tsmqr", [(i, k), ("t", i, k)], [(k, j), (i, j)])
    return record


def tiled(
    name: str, tiles: int, *, transfers: bool = True, cores: int | None = None, gpus: int | None = None
) -> Instance:
    """A tiled factorization with measured kernel times (see ``data/tiled_kernels.json``), on the machine that they were
    measured on or one with other numbers of its cores and GPUs; GPUs beyond the third have the links of the first ones.
    """
    data = json.loads((DATA / "tiled_kernels.json").read_text(encoding="utf-8"))
    record = {"cholesky": cholesky, "lu": lu, "qr": qr}[name](tiles)
    times, machine = data[name], data["machine"]
    cost = [[times["us"][kernel][kind] * 1e-6 for kind in ("cpu", "gpu")] for kernel in record.kernels]
    known = machine["gpus"]
    workers, gpus = cores or machine["cores"], gpus or known
    node = np.array([0] * workers + [1 + gpu % known for gpu in range(gpus)])
    bandwidth = np.array([[np.inf if x is None else x * 1e6 for x in row] for row in machine["bandwidth_mb_per_s"]])
    latency = np.array([[0.0 if x is None else x * 1e-6 for x in row] for row in machine["latency_us"]])
    bandwidths, latencies = bandwidth[np.ix_(node, node)], latency[np.ix_(node, node)]
    alike = (node[:, None] == node) & (node > 0)
    np.fill_diagonal(alike, False)
    bandwidths[alike], latencies[alike] = bandwidth[1, 2], latency[1, 2]
    problem = Problem.of(
        cost,
        list(record.edges),
        [tiles_moved * times["tile_bytes"] for tiles_moved in record.edges.values()],
        kind=(node > 0).astype(np.int64),
        bandwidth=bandwidths if transfers else np.inf,
        latency=latencies if transfers else 0.0,
    )
    machine_name = "" if (workers, gpus) == (machine["cores"], known) else f" on {workers}+{gpus}"
    return Instance(f"{name} {tiles}{machine_name}{'' if transfers else ' free links'}", name, problem)


def layered(rng: random.Random, items: int) -> list[tuple[int, int]]:
    """Random layers; each item after the first layer has one to three predecessors in the layer before or any."""
    width = max(1, int(items**0.5 * rng.uniform(0.5, 2.0)))
    layers: list[list[int]] = []
    left = list(range(items))
    while left:
        size = rng.randint(1, 2 * width)
        layers.append(left[:size])
        left = left[size:]
    edges: set[tuple[int, int]] = set()
    for level, layer in enumerate(layers[1:], 1):
        for item in layer:
            for _ in range(rng.randint(1, 3)):
                source = layers[level - 1] if rng.random() < 0.8 else layers[rng.randrange(level)]
                edges.add((rng.choice(source), item))
    return sorted(edges)


def fork_join(rng: random.Random, items: int) -> list[tuple[int, int]]:
    """A chain of forks that join again; each branch is a short chain."""
    edges: list[tuple[int, int]] = []
    last, item = 0, 1
    while item < items - 4:
        ends = []
        for _ in range(rng.randint(2, 12)):
            before = last
            for _ in range(rng.randint(1, 3)):
                if item >= items - 1:
                    break
                edges.append((before, item))
                before, item = item, item + 1
            if before != last:
                ends.append(before)
        edges += [(end, item) for end in ends]
        last, item = item, item + 1
    edges += [(last, rest) for rest in range(item, items)]
    return edges


def standard(rng: random.Random, items: int) -> list[tuple[int, int]]:
    """Of the kind of the Standard Task Graph set's samepred method (Tobita, Kasahara, J. Scheduling 2002): each item's
    number of predecessors is drawn around one mean, and they are any earlier items."""
    mean = rng.choice([1, 3, 5])
    edges: set[tuple[int, int]] = set()
    for item in range(1, items):
        for _ in range(rng.randint(1, 2 * mean - 1)):
            edges.add((rng.randrange(max(0, item - 60), item), item))
    return sorted(edges)


def pipeline(rng: random.Random, items: int) -> list[tuple[int, int]]:
    """Stages by frames: each stage of a frame waits for the stage before it and for the frame before."""
    stages = rng.randint(3, 8)
    frames = items // stages
    edges = []
    for frame in range(frames):
        for stage in range(stages):
            item = frame * stages + stage
            if stage:
                edges.append((item - 1, item))
            if frame:
                edges.append((item - stages, item))
    return edges


SHAPES: dict[str, Callable[[random.Random, int], list[tuple[int, int]]]] = {
    "layered": layered,
    "fork-join": fork_join,
    "standard": standard,
    "pipeline": pipeline,
}


def random_instance(seed: int, shape: str, items: int, ratio: float, machine: str) -> Instance:
    """A random graph with ``ratio`` of mean communication to mean computation, on a machine of some devices.

    ``machine``: "related" (each device has a speed), "unrelated" (each cost is drawn on its own), "gpus" (cores and
    accelerators, each item with its own acceleration, some below 1).
    """
    rng = random.Random(f"{seed} {shape} {items} {ratio} {machine}")
    edges = SHAPES[shape](rng, items)
    count = max(max(edge) for edge in edges) + 1
    work = [rng.expovariate(1.0) + 0.1 for _ in range(count)]
    speeds: list[float] | None = None
    kind: list[int]
    if machine == "related":
        speeds = [rng.choice([0.5, 1.0, 2.0, 4.0]) for _ in range(rng.randint(3, 8))]
        cost = [[w / speed for speed in speeds] for w in work]
        kind = list(range(len(speeds)))
    elif machine == "unrelated":
        kind = list(range(rng.randint(3, 8)))
        cost = [[w * rng.uniform(0.5, 2.0) for _ in kind] for w in work]
    else:
        cores, gpus = rng.randint(2, 8), rng.randint(1, 4)
        kind = [0] * cores + [1] * gpus
        cost = [[w, w / rng.choice([0.5, 1.5, 5.0, 10.0, 25.0])] for w in work]
    apart = [cost[i][k] for i in range(count) for k in kind]
    mean = sum(apart) / len(apart)
    nbytes = [rng.uniform(0.2, 1.8) * ratio * mean for _ in edges]
    problem = Problem.of(cost, edges, nbytes, kind=kind, bandwidth=1.0)
    name = f"{shape} {items} ccr {ratio:g} {machine} #{seed}"
    return Instance(name, shape, problem, work if speeds else None, speeds)


def random_instances(seeds: range, sizes: tuple[int, ...]) -> Iterator[Instance]:
    """Every shape, size, ratio and kind of machine, for each seed."""
    for seed in seeds:
        for shape in SHAPES:
            for items in sizes:
                for ratio in (0.1, 1.0, 10.0):
                    for machine in ("related", "unrelated", "gpus"):
                        yield random_instance(seed, shape, items, ratio, machine)
