"""What the pool costs beside NumPy and CuPy, and how much memory it wastes on the examples' allocations.

python benchmarks/pool.py [--quick] [--pairs]

A pair is one allocation and its free, in CPU time. The traces are recorded: each example is run, and the sizes and
lifetimes of its buffers and results are replayed on a pool over an allocator without memory. Waste is what the pool
needs above the largest sum of live bytes, as a part of that: with the smallest limit under which the trace passes three
times in a row, and what it reserves if there is no limit.
"""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import plait
from harness import heading, load_example
from plait.devices import GpuDevice, HostAllocator, cupy
from plait.devices.memory import Pool, PooledAllocator, gpu_pool
from plait.errors import OutOfMemory
from plait.graph import BUFFER
from plait.scheduler import Run

Event = tuple[int, int]  # (block, bytes): allocated; (block, -1): freed


class Paper:
    """An allocator of addresses without memory."""

    def __init__(self) -> None:
        self._next = 1 << 32

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Any = None) -> Any:
        """A block of which only the address is used."""
        block = Sheet(self._next, nbytes)
        self._next += nbytes + (1 << 20)
        return block

    def free(self, block: Any, *, stream: Any = None) -> None:
        """Nothing to do."""

    def statistics(self) -> dict[str, int]:
        """Nothing to say."""
        return {}


class Sheet:
    """A block of ``Paper``."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes

    def array(self, shape: Any, dtype: Any) -> Any:
        """There is none."""
        raise AssertionError("a recording of sizes makes no arrays")


def record(graph: plait.Graph, streams: int, **inputs: Any) -> list[Event]:
    """Run a graph; when its buffers and results came and went, and how large they were."""
    ended: list[Run] = []
    plait.run(graph, scheduler={"streams": streams}, watch=ended.append, **inputs)
    run, plan = ended[0], ended[0].plan
    records = run.trace.records
    start, end = np.zeros(len(plan.work), np.int64), np.zeros(len(plan.work), np.int64)
    start[records["item"]], end[records["item"]] = records["start_ns"], records["end_ns"]
    positions = np.repeat(np.arange(len(plan.order)), np.diff(plan.accesses[0]))
    ours = {buffer.index for buffer in plan.program.declared if buffer.kind == BUFFER}
    given = {buffer.index for buffer in plan.program.declared} - ours
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, slot in zip(positions.tolist(), plan.accesses[1].tolist(), strict=True):
        item = plan.order[position]
        first[slot] = min(first.get(slot, 1 << 62), int(start[item]))
        last[slot] = max(last.get(slot, 0), int(end[item]))
    sizes = run._state.sizes  # by slot, kept by traced runs only
    moments: list[tuple[int, int, int]] = []
    for slot, when in first.items():
        if slot not in given and sizes[slot]:
            moments.append((when, slot, sizes[slot]))
            moments.append((1 << 62 if plan.keep[slot] else last[slot], slot, -1))
    return [(slot, size) for _, slot, size in sorted(moments, key=lambda moment: (moment[0], moment[2] > 0))]


def examples(quick: bool) -> dict[str, list[Event]]:
    """Traces of the examples, of one and of two streams."""
    photo, photos = load_example("photo_edges"), load_example("photo")
    cholesky = load_example("cholesky")
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for streams in (1, 2):
            graph = photo["graph"](photos["china"](), str(Path(scratch) / "edges.png"))
            found[f"photo_edges, {streams} streams"] = record(graph, streams)
            for n, tile in ((1024, 128),) if quick else ((1024, 128), (2000, 192)):
                graph, a = cholesky["tiled_cholesky"](n, tile), cholesky["example_matrix"](n)
                found[f"cholesky {n}/{tile}, {streams} streams"] = record(graph, streams, a=a)
    both = [found[f"photo_edges, {streams} streams"] for streams in (1, 2)]
    found["two photo_edges at once"] = interleaved(both)
    return found


def interleaved(traces: list[list[Event]]) -> list[Event]:
    """Several at once, the later ones begun later."""
    moments = [
        (at / len(trace) + number / 3, number, block << 4 | number, size)
        for number, trace in enumerate(traces)
        for at, (block, size) in enumerate(trace)
    ]
    return [(block, size) for _, _, block, size in sorted(moments)]


def live_peak(trace: list[Event]) -> int:
    """The largest sum of live bytes, each rounded up as the pool does."""
    sizes: dict[int, int] = {}
    live = peak = 0
    for block, size in trace:
        if size >= 0:
            sizes[block] = size + 255 & -256
            live += sizes[block]
            peak = max(peak, live)
        else:
            live -= sizes[block]
    return peak


def replay(pool: Pool, trace: list[Event]) -> None:
    """Allocate and free as recorded; OutOfMemory if it does not fit."""
    held: dict[int, int] = {}
    try:
        for block, size in trace:
            if size >= 0:
                held[block] = pool.take(size)
            else:
                pool.give(held.pop(block))
    finally:
        for handle in held.values():
            pool.give(handle)


def smallest_limit(trace: list[Event], peak: int) -> int:
    """By bisection to 0.1 %; the pool is warm: the trace ran three times before, on no less memory."""
    low, high = peak - 1, 3 * peak
    while high - low > max(256, peak // 1000):
        middle = (low + high) // 2
        pool = Pool(Paper(), limit=middle)
        try:
            for _ in range(3):
                replay(pool, trace)
            high = middle
        except OutOfMemory:
            low = middle
    return high


def pair_us(allocate: Callable[[int], Any], free: Callable[[Any], Any] | None, nbytes: int, count: int) -> float:
    """Microseconds of a pair, the best of five."""
    best = float("inf")
    for _ in range(5):
        began = thread_time()
        if free is None:
            for _ in itertools.repeat(None, count):
                allocate(nbytes)
        else:
            for _ in itertools.repeat(None, count):
                free(allocate(nbytes))
        best = min(best, (thread_time() - began) / count)
    return best * 1e6


def random_us(pool: Pool, count: int) -> float:
    """Microseconds of a pair of random sizes with some 300 blocks held, in pools' worst case: no size comes again."""
    dice = random.Random(1)
    sizes = [dice.randrange(1, 1 << 18) for _ in range(count)]
    which = [dice.randrange(300) for _ in range(count)]
    held = [pool.take(size) for size in sizes[:300]]
    began = thread_time()
    for size, index in zip(sizes, which, strict=True):
        pool.give(held[index])
        held[index] = pool.take(size)
    taken = thread_time() - began
    for handle in held:
        pool.give(handle)
    return taken / count * 1e6


def print_pairs(count: int) -> None:
    """The cost of pairs."""
    pool = Pool(HostAllocator(), limit=1 << 30)
    blocks = PooledAllocator(pool)
    for nbytes in (1 << 10, 1 << 20, 1 << 26):
        few = max(100, min(count, (1 << 36) // nbytes // 100))
        pool.give(pool.take(nbytes))
        empty = pair_us(lambda n: np.empty(n, np.uint8), None, nbytes, few)
        handles = pair_us(pool.try_take, pool.give, nbytes, count)
        block = pair_us(blocks.allocate, blocks.free, nbytes, count)
        print(
            f"  {nbytes:>9} bytes: pool by handle {handles:.2f} µs, by block {block:.2f} µs; "
            f"numpy.empty {empty:.2f} µs, its pages not touched"
        )
    print(f"  random sizes up to 256 KiB, 300 held: pool by handle {random_us(pool, count):.2f} µs")


def print_device_pairs(device: GpuDevice, count: int) -> None:
    """The cost of pairs on a device, by stream."""
    pool, stream, cuda = gpu_pool(device), device.stream(), cupy().cuda
    for nbytes in (1 << 10, 1 << 20):
        theirs = pair_us(cuda.alloc, None, nbytes, count)
        ours = pair_us(lambda n: pool.take(n, stream), lambda handle: pool.give(handle, stream), nbytes, count)
        print(f"  {nbytes:>9} bytes of {device.name}: pool by handle {ours:.2f} µs, CuPy's pool {theirs:.2f} µs")


def print_waste(name: str, trace: list[Event]) -> None:
    """One trace's figures."""
    peak = live_peak(trace)
    limit = smallest_limit(trace, peak)
    pool = Pool(Paper())
    began = thread_time()
    replay(pool, trace)
    taken = thread_time() - began
    pairs = sum(size >= 0 for _, size in trace)
    reserved = pool.statistics().peak_reserved
    print(
        f"  {name}: {pairs} blocks, peak {peak / 2**20:.1f} MiB; waste {limit / peak - 1:.1%}, "
        f"without a limit {reserved / peak - 1:.1%}; {taken / pairs * 1e6:.1f} µs a pair"
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pairs and traces")
    parser.add_argument("--pairs", action="store_true", help="no traces, which need the extra 'examples'")
    options = parser.parse_args()
    quick = options.quick
    heading("allocate and free")
    print_pairs(20_000 if quick else 200_000)
    for device in plait.devices():
        if isinstance(device, GpuDevice):
            print_device_pairs(device, 20_000 if quick else 200_000)
            break
    if options.pairs:
        return
    print("recorded traces of the examples")
    for name, trace in examples(quick).items():
        print_waste(name, trace)


if __name__ == "__main__":
    main()
