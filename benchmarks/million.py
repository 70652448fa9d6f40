"""How recording, compiling and running grow with the number of items, up to a million.

python benchmarks/million.py [--quick]

Each size has a process of its own, so that neither warm caches nor a grown heap of one size reach the next. Bytes per
item are what the process's peak resident memory grew by, from before recording to after the run: tracemalloc would see
only Python's share, and slow it several times.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from time import perf_counter

import trio
from harness import heading, resident_bytes
from plait.scheduler import open_scheduler
from plait.testing.programs import layered

WIDTH = 100


def measure(count: int) -> dict[str, float]:
    """Seconds and bytes of one size, measured here; sizes below a million several times, the fastest counts."""
    trio.run(_once, 10 * WIDTH)  # imports and first calls
    before = resident_bytes()
    best: dict[str, float] = {}
    for _ in range(max(1, min(10, 200_000 // count))):
        times = trio.run(_once, count)
        best = {name: min(value, best.get(name, value)) for name, value in times.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {**best, "bytes": peak - before}


async def _once(count: int) -> dict[str, float]:
    began = perf_counter()
    graph = layered(count // WIDTH, WIDTH)
    recorded = perf_counter()
    async with open_scheduler(devices="host", streams=2, trace=False) as scheduler:
        opened = perf_counter()
        plan = scheduler.compile(graph)
        compiled = perf_counter()
        await scheduler.run(plan)
        ran = perf_counter()
    return {"record": recorded - began, "compile": compiled - opened, "run": ran - compiled}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 and 50,000 items")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        print(json.dumps(measure(options.count)))
        return
    heading("layered no-op items, three predecessors each: seconds and peak memory by their number")
    print(f"{'items':>9}{'record s':>10}{'compile s':>10}{'run s':>8}{'total s':>9}{'µs/item':>9}{'bytes/item':>12}")
    per_item = []
    for count in (10_000, 50_000) if options.quick else (10_000, 100_000, 1_000_000):
        command = [sys.executable, __file__, "--count", str(count)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        total = found["record"] + found["compile"] + found["run"]
        per_item.append(total / count)
        print(
            f"{count:9}{found['record']:10.3f}{found['compile']:10.3f}{found['run']:8.3f}{total:9.3f}"
            f"{total / count * 1e6:9.2f}{found['bytes'] / count:12.0f}"
        )
    print(f"time per item, largest over smallest: {per_item[-1] / per_item[0]:.2f}")


if __name__ == "__main__":
    main()
