"""Device times on the host's clock, on a device whose clock starts elsewhere and runs fast."""

from contextlib import nullcontext

import pytest
from plait.scheduler import clock
from plait.scheduler.clock import Clock

SECOND = 1_000_000_000


class FastDevice:
    """Its clock gains ``drift``, and asking it takes ``latencies`` nanoseconds in turn."""

    name = "fast:0"

    def __init__(self, drift=50e-6, latencies=(40_000, 8_000, 90_000)):
        self.now, self.drift = 5 * SECOND, drift
        self.latencies, self.turn = latencies, 0
        self.lent = 0

    def device_ms(self):
        return (self.now * (1 + self.drift) + 123 * SECOND) / 1e6

    def borrow(self, **_):
        self.lent += 1
        return self

    def give_back(self, queue):
        assert queue is self
        self.lent -= 1

    def current(self, doing):
        return nullcontext()

    def record_here(self, timing):
        assert timing
        latency = self.latencies[self.turn % len(self.latencies)]
        self.turn += 1
        self.now += latency // 2
        event = Reached(self, self.device_ms(), latency - latency // 2)
        return event


class Reached:
    def __init__(self, device, at_ms, latency):
        self.device, self.at_ms, self.latency = device, at_ms, latency

    def synchronize(self):
        self.device.now += self.latency


@pytest.fixture
def device(monkeypatch):
    made = FastDevice()
    monkeypatch.setattr(clock, "perf_counter_ns", lambda: made.now)
    monkeypatch.setattr(clock.LaunchQueue, "elapsed_ms", staticmethod(lambda one, other: other.at_ms - one.at_ms))
    return made


def event_now(device):
    return Reached(device, device.device_ms(), 0)


def test_a_time_is_as_exact_as_the_quickest_answer(device):
    made = Clock(device)
    assert made.error_ns == 4_000 and device.lent == 0
    assert abs(made.at(event_now(device)) - device.now) <= made.error_ns


def test_drift_is_taken_out_once_it_is_known(device):
    first = Clock(device)
    device.now += 2 * SECOND
    assert first.is_old
    assert abs(first.at(event_now(device)) - device.now) > 50_000  # 50 ppm of two seconds
    second = Clock(device, first)
    assert not second.is_old and second.rate == pytest.approx(1 - 50e-6, abs=5e-6)
    device.now += 9 * SECOND
    assert not second.is_old
    assert abs(second.at(event_now(device)) - device.now) < 50_000
    device.now += 2 * SECOND
    assert second.is_old
    third = Clock(device, second)
    device.now += 9 * SECOND
    assert abs(third.at(event_now(device)) - device.now) < 15_000


def test_a_host_clock_that_jumped_is_not_taken_for_drift(device):
    first = Clock(device)
    device.now += SECOND
    second = Clock(device, first)
    before = second.rate
    second.host_ns -= 100 * SECOND  # as if the host had slept, and its clock with it
    assert Clock(device, second).rate == before
