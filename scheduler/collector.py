"""Keep Python's garbage collector quiet while many objects are made and none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused(count: int, least: int = 10_000) -> Iterator[None]:
    """Compiling makes objects by the million and no garbage, and each full collection would visit them all."""
    pause = count >= least and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()
