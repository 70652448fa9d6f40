"""Device times against host times."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from plait.devices import GpuDevice, LaunchQueue

CLOCK_NS = 10_000_000_000  # a clock is set anew after so long: event times are 32-bit floats of milliseconds


class Clock:
    """A device's time against the host's: a driver event that was reached at a known time of ``perf_counter_ns``."""

    def __init__(self, device: GpuDevice) -> None:
        queue = device.borrow(priority=0, kind="compute", name=f"{device.name}/clock")
        self.event = queue.record(timing=True)
        with queue.current("setting the clock"):
            self.event.synchronize()
        self.host_ns = perf_counter_ns()
        device.give_back(queue)

    def at(self, event: Any) -> int:
        """The host time, in nanoseconds, at which a timed event was reached."""
        return self.host_ns + int(LaunchQueue.elapsed_ms(self.event, event) * 1e6)
