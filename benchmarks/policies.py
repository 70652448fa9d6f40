"""Policies against HEFT, CPoP, list scheduling and lower bounds, on tiled factorizations and random graphs.

python benchmarks/policies.py [--quick]

Makespans are simulated: one item at a time on a device, transfers of HEFT's model (see ``plait.scheduler.policies``).
HEFT and CPoP of SAGA (``pip install 'plait[peers]'``) run in the same process where each cost is work over speed, which
is all that they take; their schedules count as they give them. Wanted: the default at most 1.05 of HEFT's in the mean
and 1.25 on any instance, and at most 1.10 of the best lower bound on Cholesky with 20 tiles and more.
"""

from __future__ import annotations

import argparse
import logging
import statistics
from time import perf_counter, process_time
from typing import Any

import numpy as np
from harness import Others, heading, print_others
from plait.graph.machine_bounds import area_bound, linear_bound, path_bound, travel_times
from plait.scheduler.policies import DEFAULT, POLICIES, Problem, find, simulate
from plait.scheduler.policies.balance import kind_costs
from plait.scheduler.policies.place import append
from plait.scheduler.policies.rank import ordered, upward
from task_graphs import Instance, random_instances, tiled

Row = dict[str, float]
MACHINES = ((16, 2), (22, 3), (8, 1), (4, 4), (12, 6))  # cores and GPUs


def bounds(problem: Problem, *, linear: bool) -> Row:
    """Lower bounds of the makespan in seconds, by name."""
    cost, count = kind_costs(problem), np.bincount(problem.kind, minlength=problem.cost.shape[1])
    found = {"path": path_bound(problem.edges, cost).seconds, "area": area_bound(cost, count)}
    heads = tails = None
    if len(problem.edges) * problem.devices**2 <= 2_000_000:
        delays = problem.latency + problem.nbytes[:, None, None] / problem.bandwidth
        heads, tails = travel_times(problem.edges, problem.seconds, delays)
        found["path with transfers"] = float((heads + problem.seconds.min(axis=1) + tails).max())
    if linear:
        found["linear program"] = linear_bound(problem.edges, cost, count, heads, tails)
    return found


def makespans(instance: Instance) -> tuple[Row, Row]:
    """Makespans by scheduler, and CPU microseconds of planning an item by policy."""
    problem = instance.problem
    spans: Row = {}
    took: Row = {}
    for name in POLICIES:
        began = process_time()
        schedule = find(name).plan(problem)
        took[name] = (process_time() - began) / problem.items * 1e6
        spans[name] = schedule.makespan
        if name == DEFAULT:
            assert spans[name] == simulate(problem, schedule.device, schedule.order).makespan
    spans["list by upward rank"] = append(problem, ordered(problem, upward(problem))).makespan
    return spans, took


def peers(instance: Instance) -> Row:
    """Makespans of SAGA's HEFT and CPoP, on the same graph and machine; nothing where it is not installed."""
    try:
        from saga import Network, TaskGraph  # noqa: PLC0415
        from saga.schedulers.cpop import CpopScheduler  # noqa: PLC0415
        from saga.schedulers.heft import HeftScheduler  # noqa: PLC0415
    except ImportError:
        return {}
    work, speeds, problem = instance.work, instance.speeds, instance.problem
    assert work is not None and speeds is not None
    logging.getLogger().setLevel(logging.ERROR)  # it warns of every graph that has several sources
    nodes = [(f"d{device}", speed) for device, speed in enumerate(speeds)]
    links = [(a, b, 1e12 if a == b else 1.0) for a, _ in nodes for b, _ in nodes]
    edges = zip(problem.edges.source.tolist(), problem.edges.target.tolist(), problem.nbytes.tolist(), strict=True)
    network: Any = Network.create(nodes=nodes, edges=links)
    graph: Any = TaskGraph.create(
        tasks=[(f"i{item}", seconds) for item, seconds in enumerate(work)],
        dependencies=[(f"i{a}", f"i{b}", nbytes) for a, b, nbytes in edges],
    )
    return {
        "SAGA HEFT": HeftScheduler().schedule(network, graph).makespan,
        "SAGA CPoP": CpopScheduler().schedule(network, graph).makespan,
    }


def factorizations(quick: bool) -> list[float]:
    """Print each factorization's makespans over the best bound; the default's on Cholesky of 20 tiles and more."""
    sizes = {"cholesky": (10, 20) if quick else (10, 15, 20, 25, 30, 40)}
    sizes |= dict.fromkeys(("lu", "qr"), (10,) if quick else (10, 15, 20))
    print("\nmakespan over the best lower bound, 9 cores and 3 GPUs (data/tiled_kernels.json)")
    print(f"{'graph':<14}{'items':>6} " + "".join(f"{name:>15}" for name in POLICIES) + "  best bound  µs/item default")
    found = []
    for name, several in sizes.items():
        for tiles in several:
            instance = tiled(name, tiles)
            spans, took = makespans(instance)
            lower = bounds(instance.problem, linear=True)
            best = max(lower, key=lambda each: lower[each])
            ratios = {policy: spans[policy] / lower[best] for policy in POLICIES}
            print(
                f"{instance.name:<14}{instance.problem.items:>6} "
                + "".join(f"{ratio:>15.3f}" for ratio in ratios.values())
                + f"  {lower[best]:.4g} s by {best}  {took[DEFAULT]:.0f}"
            )
            if name == "cholesky" and tiles >= 20:
                found.append(ratios[DEFAULT])
    return found


def other_machines(quick: bool) -> list[float]:
    """Print the default's and HEFT's makespans over the best bound with other numbers of cores and GPUs; the default's
    on Cholesky."""
    print("\nmakespan over the best lower bound, other machines of the same cores and GPUs")
    found = []
    for name in ("cholesky",) if quick else ("cholesky", "lu", "qr"):
        for cores, gpus in ((16, 2),) if quick else MACHINES:
            instance = tiled(name, 20, cores=cores, gpus=gpus)
            best = max(bounds(instance.problem, linear=True).values())
            ours, heft = (find(policy).plan(instance.problem).makespan / best for policy in (DEFAULT, "heft"))
            print(f"{instance.name:<22} default {ours:.3f}, HEFT {heft:.3f}")
            if name == "cholesky":
                found.append(ours)
    return found


def random_graphs(quick: bool, seeds: int) -> tuple[list[float], list[float]]:
    """Print means by kind of machine and ratio; the default's makespans over HEFT's, ours and SAGA's."""
    print("\nmakespan over HEFT's, mean (worst), random graphs: layered, fork-join, standard, pipelines")
    groups: dict[str, list[Row]] = {}
    ours, theirs = [], []
    costs: list[float] = []
    for instance in random_instances(range(seeds), (40,) if quick else (60, 200, 600)):
        spans, took = makespans(instance)
        costs.append(took[DEFAULT])
        row = {name: span / spans["heft"] for name, span in spans.items()}
        best = max(bounds(instance.problem, linear=False).values())
        row["lower bound"] = best / spans["heft"]
        if instance.work is not None and instance.problem.items <= 100:
            other = peers(instance)
            row |= {name: span / spans["heft"] for name, span in other.items()}
            if other:
                theirs.append(spans[DEFAULT] / other["SAGA HEFT"])
        ours.append(row[DEFAULT])
        groups.setdefault(instance.name.split("ccr ")[1].split(" #")[0], []).append(row)
        groups.setdefault(instance.family, []).append(row)
    names = list(dict.fromkeys(key for rows in groups.values() for row in rows for key in row))
    print(f"{'group':<16}{'graphs':>7} " + "".join(f"{name:>21}" for name in names if name != "heft"))
    for group, rows in groups.items():
        cells = []
        for name in names:
            if name != "heft":
                values = [row[name] for row in rows if name in row]
                cells.append(f"{statistics.mean(values):.3f} ({max(values):.3f})" if values else "-")
        print(f"{group:<16}{len(rows):>7} " + "".join(f"{cell:>21}" for cell in cells))
    print(f"planning with the default: {statistics.mean(costs):.0f} µs an item in the mean, {max(costs):.0f} at most")
    return ours, theirs


def main() -> None:
    """Print tables and what is wanted of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small graphs, one seed")
    parser.add_argument("--seeds", type=int, default=3, help="random graphs of each kind")
    options = parser.parse_args()
    heading("policies: simulated makespans")
    began = perf_counter()
    with Others() as others:
        cholesky = factorizations(options.quick)
        elsewhere = other_machines(options.quick)
        ours, theirs = random_graphs(options.quick, 1 if options.quick else options.seeds)
    print()
    print(
        f"default over HEFT:      mean {statistics.mean(ours):.3f} (wanted 1.05), worst {max(ours):.3f} (wanted 1.25)"
    )
    if theirs:
        print(f"default over SAGA HEFT: mean {statistics.mean(theirs):.3f}, worst {max(theirs):.3f}")
    else:
        print("SAGA is not installed: pip install 'plait[peers]'")
    print(f"default over the best bound, Cholesky of 20 tiles and more: worst {max(cholesky):.3f} (wanted 1.10)")
    print(f"on other machines, 20 tiles: worst {max(elsewhere):.3f} (wanted 1.10)")
    print_others(others.seconds, perf_counter() - began)
    assert statistics.mean(ours) <= 1.05 and max(ours) <= 1.25 and max(cholesky) <= 1.10


if __name__ == "__main__":
    main()
