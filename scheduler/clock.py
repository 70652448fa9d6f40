"""Device times against host times."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from plait.devices import GpuDevice, LaunchQueue

FIRST_NS = 1_000_000_000  # until the two clocks have been compared twice, how much they drift is not known
CLOCK_NS = 10_000_000_000  # a clock is set anew after so long: event times are 32-bit floats of milliseconds
MOST_DRIFT = 1e-3  # more than any crystal's: the host was suspended, or its clock was slewed
TRIES = 3


class Clock:
    """A device's time against the host's: a driver event that was reached at a known time of ``perf_counter_ns``.

    The event is reached between two readings of the host's clock, so it is taken to be in the middle, of several tries
    the one whose readings lie closest; ``error_ns`` is half of that. Given the clock before this one, the drift
    between the two sides since then is taken out of later times.
    """

    def __init__(self, device: GpuDevice, before: Clock | None = None) -> None:
        queue = device.borrow(priority=0, kind="compute", name=f"{device.name}/clock")
        try:
            found = [_compare(queue) for _ in range(TRIES)]
        finally:
            device.give_back(queue)
        self.error_ns, self.host_ns, self.event = min(found, key=lambda each: each[0])
        self.rate: float = 1.0 if before is None else before.rate
        self.compared = False
        if before is not None:
            elapsed = LaunchQueue.elapsed_ms(before.event, self.event) * 1e6
            rate = (self.host_ns - before.host_ns) / elapsed if elapsed > 0 else 0.0
            if abs(rate - 1.0) < MOST_DRIFT:
                self.rate, self.compared = rate, True

    @property
    def is_old(self) -> bool:
        """Whether it is time for another one."""
        return perf_counter_ns() - self.host_ns > (CLOCK_NS if self.compared else FIRST_NS)

    def at(self, event: Any) -> int:
        """The host time, in nanoseconds, at which a timed event was reached."""
        return self.host_ns + int(LaunchQueue.elapsed_ms(self.event, event) * 1e6 * self.rate)


def _compare(queue: LaunchQueue) -> tuple[int, int, Any]:
    """How far off the host time may be, the host time, and the event that was reached then."""
    with queue.current("setting the clock"):
        before = perf_counter_ns()
        event = queue.record_here(True)
        event.synchronize()
        after = perf_counter_ns()
    return (after - before) // 2, (before + after) // 2, event
