"""Tiled Cholesky on two host streams beside SciPy's own with two BLAS threads, taking turns in one process.

python benchmarks/cholesky.py [--quick]

Both factor the same float64 matrix, and both start from it and end with a triangular matrix of its own. LAPACK's bare
dpotrf is shown too: SciPy's ``cholesky`` checks and copies around it.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
import trio
from harness import Others, heading, load_example, median, print_others, seconds
from plait.devices import bounded_blas
from plait.scheduler import open_scheduler
from scipy import linalg
from scipy.linalg import lapack


async def measure(n: int, tile: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each, by name."""
    example = load_example("cholesky")
    a = example["example_matrix"](n)
    times: dict[str, list[float]] = {}
    with bounded_blas(2):
        async with open_scheduler(devices="host", streams=2, trace=False) as scheduler:
            plan = scheduler.compile(example["tiled_cholesky"](n, tile))
            lower = (await scheduler.run(plan, a=a))["l"]
            error = np.abs(lower - linalg.cholesky(a, lower=True)).max() / np.abs(lower).max()
            print(f"largest relative difference from SciPy: {error:.1e}")
            assert error < 1e-12
            del lower
            for _ in range(rounds):
                times.setdefault("scipy.linalg.cholesky", []).append(seconds(lambda: linalg.cholesky(a, lower=True)))
                times.setdefault("dpotrf", []).append(seconds(lambda: lapack.dpotrf(a, lower=1)))
                began = perf_counter()
                await scheduler.run(plan, a=a)
                times.setdefault("plait", []).append(perf_counter() - began)
    return times


def main() -> None:
    """Print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 1024, 3 rounds")
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--tile", type=int, default=256)
    options = parser.parse_args()
    n, rounds = (1024, 3) if options.quick else (options.n, 7)
    heading(f"Cholesky of {n} x {n} float64, tiles of {options.tile}, two streams; median of {rounds} rounds")
    began = perf_counter()
    with Others() as others:
        times = trio.run(measure, n, options.tile, rounds)
    for name, several in times.items():
        print(f"{name:<24}{median(several) * 1e3:9.1f} ms  (fastest {min(several) * 1e3:.1f})")
    for name in ("scipy.linalg.cholesky", "dpotrf"):
        pairs = [mine / other for mine, other in zip(times["plait"], times[name], strict=True)]
        print(f"plait takes {median(pairs):.2f} of the time of {name} (median of rounds)")
    print_others(others.seconds, perf_counter() - began)


if __name__ == "__main__":
    main()
