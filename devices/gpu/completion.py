"""Awaitable completion: how a driver event becomes a settled mark, three ways behind one interface.

- ``host-function``: the driver calls back from the stream.
- ``waiter``, the default: a thread for each stream in use blocks in the driver.
- ``polling``: a thread queries, at a pace that follows how long the wait has been.

The waiter is the default since it asks nothing of the stream. A host function holds its stream up until the driver's
thread has been woken and has had the GIL: tens of microseconds on a GPU, between two kernels, and milliseconds beside
busy Python code. It must also never meet a driver call that keeps the GIL (CuPy's queries do) while it waits for what
that call needs, and none is called once the device has failed. A waiter costs a blocked thread for each stream in use.
On CUDA it spins unless events are made with ``block=True``; blocking then wakes by an interrupt, as host functions do.

Measured by ``python benchmarks/wakeup.py`` on 2 cores with HIP on CPU threads, in units of a bare host function's p50
of 226 µs: host function 1.07, waiter 1.05, polling 1.44. A stream of 50 followed kernels beside busy Python code took
257, 7 and 8 ms. Polling takes 4 % of a core while work is pending, the others half a percent, and none when nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from plait.devices.gpu.host_function import HostFunction
from plait.devices.gpu.polling import Polling
from plait.devices.gpu.waiter import Waiter
from plait.devices.mark import Mark
from plait.errors import DeviceError


class Tracker(Protocol):
    """Settles marks once driver events are reached; one per device."""

    def follow(self, stream: int, event: Any, mark: Mark) -> None:
        """Settle ``mark`` once ``event`` is done, or with a DeviceError (DeviceLost) if the device failed.

        ``event`` is a ``cupy.cuda.Event`` made with ``block=True``, the last one recorded in the driver stream with the
        pointer ``stream``: whoever records and follows on one stream takes turns. Any thread; settles on any thread, at
        once if the event is reached. The event is kept until then; the stream is the caller's to keep.
        """
        ...

    def close(self) -> None:
        """Settle all that is followed, now or later, with a DeviceError; waits for nothing."""
        ...


WAYS: Mapping[str, Callable[[str, int], Tracker]] = MappingProxyType(
    {"host-function": HostFunction, "waiter": Waiter, "polling": Polling}
)
DEFAULT = "waiter"


def tracker(device_name: str, ordinal: int, way: str = DEFAULT) -> Tracker:
    """A tracker for one device; DeviceError if there is no such way."""
    if way not in WAYS:
        raise DeviceError(f"no way of completion is called {way!r}; there are {', '.join(WAYS)}")
    return WAYS[way](device_name, ordinal)
