"""Whether memory grows with the number of runs of one plan.

python benchmarks/memory_runs.py [--quick]

The plan allocates, copies, updates in place and returns arrays, traced and untraced. Resident memory of the process is
read after 10 runs, 1,000 and 2,000, each time with garbage collected and, on glibc, with the free memory returned that
malloc keeps in a heap for each thread: those find their size only after some hundred runs.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import platform
import sys

import numpy as np
import plait
import trio
from harness import heading, resident_bytes
from plait.scheduler import open_scheduler


def program() -> plait.Graph:
    """Twenty tiles of 80 KB that are copied, changed in place, and summed; 3.2 MB an input and its buffer."""
    g = plait.Graph("memory")
    x = g.input("x", (200, 1000), "float64")
    work = g.buffer("work", (200, 1000), fill=0)
    sums = []
    for top in range(0, 200, 10):
        rows = slice(top, top + 10)
        g.copy(work[rows], x[rows])
        g.call(np.negative, work[rows], out=plait.update(work[rows]))
        sums.append(g.call(np.sum, work[rows]))
    g.output("total", g.call(sum, sums))
    g.output("work", work)
    return g


def give_back() -> None:
    """Collect garbage and return free memory to the system, as far as this platform can."""
    gc.collect()
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


async def measure(counts: list[int], trace: bool) -> list[int]:
    """Resident bytes after each number of runs."""
    x = np.ones((200, 1000))
    found = []
    async with open_scheduler(devices="host", streams=2, trace=trace) as scheduler:
        plan = scheduler.compile(program())
        done = 0
        for count in counts:
            while done < count:
                result = await scheduler.run(plan, x=x)
                assert result["total"] == -x.size
                done += 1
            del result
            give_back()
            found.append(resident_bytes())
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200 runs")
    counts = [10, 100, 200] if parser.parse_args().quick else [10, 1000, 2000]
    heading("resident memory after so many runs of one plan")
    for trace in (False, True):
        found = trio.run(measure, counts, trace)
        shown = ", ".join(f"{count} runs {each / 2**20:.1f} MiB" for count, each in zip(counts, found, strict=True))
        ratio, later = found[1] / found[0], (found[2] - found[1]) / (counts[2] - counts[1])
        print(f"trace {'on' if trace else 'off'}: {shown}; ratio {ratio:.3f}, then {later:+.0f} bytes a run")


if __name__ == "__main__":
    main()
