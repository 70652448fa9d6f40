"""How fast bytes go between the places of a scheduler, for planning: what devices say of themselves, else PCIe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Of which nothing is known: PCIe 4.0 x16 in practice, and a driver's call. Of its peak a link gives about this part.
_BANDWIDTH, _LATENCY, _PART = 20e9, 10e-6, 0.8

FloatArray = npt.NDArray[np.float64]


def links(devices: Sequence[Any]) -> tuple[FloatArray, FloatArray]:
    """``(bandwidth, latency)`` between the host (place 0) and ``devices``: bytes per second and seconds, from a place
    (row) to a place (column); float64, shape (places, places), the diagonals inf and 0.

    A device may have ``link_to(name)``, which gives both for the place of that name, or None if it is reached through
    the host, as a simulated device knows from its machine. Else a device's PCIe link is asked for; two devices that do
    not reach each other's memory go through the host, one copy after the other.
    """
    count = len(devices) + 1
    bandwidth, latency = np.full((count, count), np.inf), np.zeros((count, count))
    for place, device in enumerate(devices, 1):
        bandwidth[0, place], latency[0, place] = bandwidth[place, 0], latency[place, 0] = _to_host(device)
    for a, first in enumerate(devices, 1):
        for b, second in enumerate(devices[:a], 1):
            if b == a:
                continue
            found = _between(first, second)
            if found is None:
                slow, late = 1 / bandwidth[a, 0] + 1 / bandwidth[b, 0], latency[a, 0] + latency[b, 0]
                found = (float(np.inf if slow == 0 else 1 / slow), float(late))
            bandwidth[a, b], latency[a, b] = bandwidth[b, a], latency[b, a] = found
    return bandwidth, latency


def _to_host(device: Any) -> tuple[float, float]:
    if hasattr(device, "link_to"):
        return device.link_to("host") or (_BANDWIDTH, _LATENCY)
    peak = _described(device, "pci_bandwidth")
    return (peak * _PART, _LATENCY) if peak else (_BANDWIDTH, _LATENCY)


def _between(first: Any, second: Any) -> tuple[float, float] | None:
    if hasattr(first, "link_to"):
        found: tuple[float, float] | None = first.link_to(second.name)
        return found
    if second.ordinal not in (_described(first, "peers") or ()):
        return None
    return min(_to_host(first)[0], _to_host(second)[0]), _LATENCY


def _described(device: Any, name: str) -> Any:
    try:
        return getattr(device.description, name, None)
    except Exception:  # no driver, no CuPy: a plan may be made for a device that is not there
        return None
