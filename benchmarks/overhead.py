"""What an item costs: a layered DAG of no-ops, three predecessors each, in plait and in its rivals.

python benchmarks/overhead.py [--quick]

Everything runs in one process, taking turns, and every rival executes the same DAG: each item is given its
predecessors' results. Ray is measured where it is importable.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from graphlib import TopologicalSorter
from time import perf_counter, process_time
from typing import Any

import trio
from harness import Others, heading, median, print_others, seconds
from plait.scheduler import Scheduler, open_scheduler
from plait.testing.programs import layered, no_op

Predecessors = list[list[int]]


def plain_loop(before: Predecessors) -> None:
    """The floor: the calls alone, in an order known to be right."""
    results: list[Any] = []
    for each in before:
        results.append(no_op(*[results[index] for index in each]))


def graphlib_loop(before: Predecessors) -> None:
    """The standard library's sorter, driven by one thread."""
    sorter = TopologicalSorter(dict(enumerate(before)))
    sorter.prepare()
    results: dict[int, Any] = {}
    while sorter.is_active():
        for node in sorter.get_ready():
            results[node] = no_op(*[results[index] for index in before[node]])
            sorter.done(node)


async def asyncio_tasks(before: Predecessors) -> None:
    """A task for each item, which awaits its predecessors' tasks."""
    tasks: list[asyncio.Task[None]] = []

    async def item(each: list[int]) -> None:
        no_op(*[await tasks[index] for index in each])

    for each in before:
        tasks.append(asyncio.create_task(item(each)))
    await asyncio.gather(*tasks)


async def trio_nursery(before: Predecessors) -> None:
    """A task for each item, which awaits its predecessors' events."""
    results: list[Any] = [None] * len(before)
    done = [trio.Event() for _ in before]

    async def item(node: int) -> None:
        for index in before[node]:
            await done[index].wait()
        results[node] = no_op(*[results[index] for index in before[node]])
        done[node].set()

    async with trio.open_nursery() as nursery:
        for node in range(len(before)):
            nursery.start_soon(item, node)


def thread_pool(before: Predecessors) -> None:
    """Items submitted as their last predecessor ends, to two threads."""
    waiting = [len(each) for each in before]
    after: Predecessors = [[] for _ in before]
    for node, each in enumerate(before):
        for index in each:
            after[index].append(node)
    results: list[Any] = [None] * len(before)
    left = len(before)
    lock, over = threading.Lock(), threading.Event()

    def item(node: int) -> int:
        results[node] = no_op(*[results[index] for index in before[node]])
        return node

    def ended(future: Future[int]) -> None:
        nonlocal left
        ready = []
        with lock:
            left -= 1
            for node in after[future.result()]:
                waiting[node] -= 1
                if not waiting[node]:
                    ready.append(node)
        for node in ready:
            submit(node)
        if not left:
            over.set()

    with ThreadPoolExecutor(2) as pool:

        def submit(node: int) -> None:
            pool.submit(item, node).add_done_callback(ended)

        for node, each in enumerate(before):
            if not each:
                submit(node)
        over.wait()


def dask_threaded(before: Predecessors) -> None:
    """Dask's local scheduler on two threads."""
    from dask.threaded import get  # noqa: PLC0415  a rival that need not be here

    graph = {("item", node): (no_op, *(("item", index) for index in each)) for node, each in enumerate(before)}
    get(graph, [("item", node) for node in range(len(before))], num_workers=2)


def ray_tasks(before: Predecessors) -> None:
    """A remote call for each item, on two workers that are started already."""
    import ray  # noqa: PLC0415  a rival that need not be here

    remote = ray.remote(no_op)
    references: list[Any] = []
    for each in before:
        references.append(remote.remote(*[references[index] for index in each]))
    ray.get(references)


def rivals() -> dict[str, Callable[[Predecessors], object]]:
    """What is here to measure, by name."""
    found: dict[str, Callable[[Predecessors], object]] = {
        "plain loop": plain_loop,
        "graphlib": graphlib_loop,
        "asyncio tasks": lambda before: asyncio.run(asyncio_tasks(before)),
        "trio nursery": lambda before: trio.run(trio_nursery, before),
        "ThreadPoolExecutor": thread_pool,
    }
    if importlib.util.find_spec("dask") is not None:
        found["dask.threaded"] = dask_threaded
    if importlib.util.find_spec("ray") is not None:
        import ray  # noqa: PLC0415  a rival that need not be here

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        found["ray"] = ray_tasks
    return found


async def plait_times(layers: int, width: int, repeat: int) -> dict[str, list[float]]:
    """A reused plan with the trace off and on, and everything from recording on."""
    times: dict[str, list[float]] = {}
    async with (
        open_scheduler(devices="host", streams=2, trace=False) as plain,
        open_scheduler(devices="host", streams=2, trace=True) as traced,
    ):
        plans = {"plait, reused plan": plain, "plait, reused plan, traced": traced}
        compiled = {name: scheduler.compile(layered(layers, width)) for name, scheduler in plans.items()}
        for _ in range(repeat):
            for name, scheduler in plans.items():
                times.setdefault(name, []).append(await _run_s(scheduler, compiled[name]))
            began = perf_counter()
            await plain.run(layered(layers, width))
            times.setdefault("plait, record + compile + run", []).append(perf_counter() - began)
    return times


async def tracing_s(layers: int, width: int, repeat: int) -> float:
    """What tracing adds to an item, in seconds of processor time: the best of several runs each, taking turns."""
    async with (
        open_scheduler(devices="host", streams=2, trace=False) as plain,
        open_scheduler(devices="host", streams=2, trace=True) as traced,
    ):
        best = []
        for scheduler in (plain, traced):
            best.append((scheduler, scheduler.compile(layered(layers, width)), [float("inf")]))
        for _ in range(repeat):
            for scheduler, plan, least in best:
                began = process_time()
                await scheduler.run(plan)
                least[0] = min(least[0], process_time() - began)
    return (best[1][2][0] - best[0][2][0]) / (layers * width)


async def _run_s(scheduler: Scheduler, plan: Any) -> float:
    began = perf_counter()
    await scheduler.run(plan)
    return perf_counter() - began


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 20 x 20 items")
    quick = parser.parse_args().quick
    layers, width, rounds, inner = (20, 20, 3, 3) if quick else (100, 100, 7, 5)
    count = layers * width
    heading(f"{layers} x {width} no-op items, three predecessors each; median of {rounds} rounds")
    offsets, sources = layered(layers, width).program().edges.predecessors()
    before = [sources[offsets[node] : offsets[node + 1]].tolist() for node in range(count)]
    times: dict[str, list[float]] = {}
    found = rivals()
    began = perf_counter()
    with Others() as others:
        for _ in range(rounds):
            for name, call in found.items():
                times.setdefault(name, []).append(seconds(lambda call=call: call(before)))  # type: ignore[misc]
            for name, several in trio.run(plait_times, layers, width, inner).items():
                times.setdefault(name, []).append(median(several))
    loop = median(times["plain loop"])
    reused = median(times["plait, reused plan"])
    print(f"{'':32}{'µs/item':>9}{'x loop':>9}{'x reused plan':>15}")
    for name, several in times.items():
        each = median(several)
        print(f"{name:<32}{each / count * 1e6:9.2f}{each / loop:9.1f}{each / reused:15.1f}")
    added = trio.run(tracing_s, layers, width, 30 if quick else 150)
    print(f"tracing costs {added * 1e9:.0f} ns of processor time an item, best of runs taking turns")
    print_others(others.seconds, perf_counter() - began)


if __name__ == "__main__":
    main()
