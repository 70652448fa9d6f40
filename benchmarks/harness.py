"""What the benchmarks share: the machine, quiet or not, medians, and how another file is loaded."""

from __future__ import annotations

import gc
import os
import platform
import runpy
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import plait

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def heading(what: str) -> None:
    """What is measured, where, and by which command."""
    description = plait.device("host").description
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = getattr(description, "model", None) or platform.processor() or platform.machine()
    print(what)
    print(f"machine: {model}, {cores} usable cores, Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"command: python {' '.join(sys.argv)}")
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if name in os.environ:
            print(f"warning: {name} is set and changes what is measured; unset it", file=sys.stderr)


def load_example(name: str) -> dict[str, Any]:
    """The names of an example."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def seconds(call: Callable[[], object]) -> float:
    """How long one call takes, with garbage of before out of the way."""
    gc.collect()
    began = perf_counter()
    call()
    return perf_counter() - began


def median(times: list[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    return statistics.median(times)


def resident_bytes() -> int:
    """Memory of this process that is in use now; 0 where /proc does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Others:
    """CPU seconds that other processes took of this machine's cores; a ratio measured beside them says little."""

    _machine: float = 0.0
    _mine: float = 0.0
    seconds: float = 0.0

    def __enter__(self) -> Others:
        self._machine, self._mine = _busy_s(), process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = max(0.0, _busy_s() - self._machine - (process_time() - self._mine))


def _busy_s() -> float:
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
    except OSError:
        return 0.0
    ticks = [int(word) for word in line.split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def print_others(taken: float, wall: float) -> None:
    """Say it if the machine was not ours alone."""
    if taken > 0.05 * wall:
        print(f"note: other processes took {taken:.1f} CPU seconds of these {wall:.1f}: measure again when it is quiet")
