"""A trace as text: a line per stream, darker where the stream was busier."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from plait.scheduler.trace import Trace

_SHADES = " ░▒▓█"


def timeline(trace: Trace, width: int = 72) -> str:
    """One line per stream that ran anything; each of ``width`` cells shows the part of its time spent in items."""
    span = max(1, trace.makespan_ns) / width
    records = trace.records
    lines = []
    for index, name in enumerate(trace.streams):
        mine = records[records["stream"] == index]
        if len(mine):
            busy = _busy(mine["start_ns"] / span, mine["end_ns"] / span, width)
            shades = np.ceil(busy.clip(0, 1) * (len(_SHADES) - 1) - 1e-9).astype(int)
            lines.append(f"{name:<15} ▕{''.join(_SHADES[shade] for shade in shades)}▏")
    return "\n".join(lines)


Floats = npt.NDArray[np.float64]


def _busy(start: Floats, end: Floats, width: int) -> Floats:
    """Per cell, how much of it the intervals cover; integrated at the cells' borders."""
    borders = np.arange(width + 1, dtype=np.float64)
    covered = np.zeros(width + 1)
    for low in range(0, len(start), 4096):  # in parts, so that a long trace needs little memory
        left, right = start[low : low + 4096, None], end[low : low + 4096, None]
        covered += (np.clip(borders, left, right) - left).sum(axis=0)
    return np.asarray(np.diff(covered))
