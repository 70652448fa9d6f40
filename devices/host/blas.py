"""A bound on the threads of BLAS and OpenMP libraries, so that streams side by side do not fight over the
cores.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger("plait.devices.host")


class _Bound:
    """The bounds in force. The tightest one holds; when the last one ends, every library gets back what it
    had.

    A library that runs on OpenMP may count threads per calling thread; such a one is bounded for the thread
    that enters.
    """

    def __init__(self) -> None:
        # Guards all below: the figures belong to the process, and bounds begin and end on any thread.
        self._lock = threading.RLock()
        self._bounds: Counter[int] = Counter()
        self._found: dict[str, Any] = {}  # file of a library -> its controller, kept between bounds
        self._before: dict[str, int] = {}  # file of a library -> its threads before the first bound
        self._modules = -1
        self._applied: int | None = None
        self._missing = False

    def enter(self, threads: int) -> None:
        with self._lock:
            self._bounds[threads] += 1
            self._apply()

    def leave(self, threads: int) -> None:
        with self._lock:
            self._bounds[threads] -= 1
            if not self._bounds[threads]:
                del self._bounds[threads]
            self._apply()

    def _apply(self) -> None:
        if not self._bounds:
            self._applied = None
            for file, threads in self._before.items():
                self._found[file].set_num_threads(threads)
            self._before.clear()
            return
        new = self._look()
        bound = min(self._bounds)
        if bound == self._applied and not new:
            return
        for file, library in self._found.items():
            if file not in self._before:
                threads = library.get_num_threads()
                if threads is None:
                    continue
                self._before[file] = threads
            library.set_num_threads(min(bound, self._before[file]))
        self._applied = bound

    def _look(self) -> bool:
        """Search for libraries again if modules were imported since: a search takes milliseconds, the count
        none.
        """
        modules = len(sys.modules)
        if self._missing or modules == self._modules:
            return False
        try:
            import threadpoolctl  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415  optional
        except ImportError:
            self._missing = True
            logger.info("threadpoolctl is not installed, so BLAS threads stay unbounded: pip install 'plait[blas]'")
            return False
        known = set(self._found)
        for library in threadpoolctl.ThreadpoolController().lib_controllers:
            self._found.setdefault(library.filepath, library)
        self._modules = len(sys.modules)
        return set(self._found) != known


_bound = _Bound()


@contextlib.contextmanager
def bounded_blas(threads: int) -> Iterator[None]:
    """Let BLAS and OpenMP use at most ``threads`` threads inside; nests, and restores what was.

    Enter it on one thread of a process only: threadpoolctl heeds, for OpenBLAS, just the first that ever set threads.
    """
    if threads < 1:
        raise ValueError(f"BLAS needs at least one thread, not {threads}")
    _bound.enter(threads)
    try:
        yield
    finally:
        _bound.leave(threads)
