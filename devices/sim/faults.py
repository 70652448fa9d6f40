"""What goes wrong on a simulated machine, and when: seconds of virtual time since the scheduler was opened."""

from __future__ import annotations

import math
from dataclasses import dataclass


class PlantedError(Exception):
    """What an item raises that a fault makes fail."""


@dataclass(frozen=True, slots=True)
class SlowDevice:
    """Whatever starts on ``device`` in that time takes ``factor`` times as long; copies take as long as ever."""

    device: str
    factor: float
    from_s: float = 0.0
    until_s: float = math.inf


@dataclass(frozen=True, slots=True)
class LostDevice:
    """At ``at_s`` the device is gone, with all that is in flight there."""

    device: str
    at_s: float


@dataclass(frozen=True, slots=True)
class LateCompletion:
    """The host hears ``by_s`` late of what ends on ``device`` in that time; other streams hear at once."""

    device: str
    by_s: float
    from_s: float = 0.0
    until_s: float = math.inf


@dataclass(frozen=True, slots=True)
class FailedItem:
    """The item called ``item`` fails in its first ``times`` attempts, after taking its time in each."""

    item: str
    times: int = 1 << 30


Fault = SlowDevice | LostDevice | LateCompletion | FailedItem
