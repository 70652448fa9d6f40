"""The ``memory_limit`` that a user gives, as bytes for each place of a scheduler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from plait.devices import Device
from plait.errors import PlanError

MemoryLimit = int | float | Mapping[str, int | float | None] | None


def checked_limits(memory_limit: Any, devices: Sequence[Device], names: Sequence[str]) -> list[int | None]:
    """Bytes per place (``names``: the host, then the devices), None where there is no limit.

    One number is for every GPU or simulated device, or for the host if there is no other; a mapping says by device
    name. An integer is bytes, a float of at most 1 a fraction of the device's memory. PlanError for anything else.
    """
    if memory_limit is None:
        return [None] * len(names)
    if isinstance(memory_limit, Mapping):
        known = {name.lower(): place for place, name in enumerate(names)} | {"host:0": 0}
        limits: list[int | None] = [None] * len(names)
        for name, value in memory_limit.items():
            if str(name).lower() not in known:
                raise PlanError(f"memory_limit names {name!r}; this scheduler has {', '.join(names)}")
            place = known[str(name).lower()]
            limits[place] = None if value is None else _bytes(value, names[place], devices)
        return limits
    if len(names) == 1:
        return [_bytes(memory_limit, names[0], devices)]
    return [None, *(_bytes(memory_limit, name, devices) for name in names[1:])]


def _bytes(value: Any, name: str, devices: Sequence[Device]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, float) and 0 < value <= 1:
        total = _total(name, devices)
        if total is None:
            raise PlanError(f"memory_limit={value!r} is a fraction, and the memory of {name} is not known: give bytes")
        return math.floor(total * value)
    raise PlanError(
        f"memory_limit of {name} must be a positive number of bytes (an int), a fraction of its memory (a float of at "
        f"most 1.0) or None, not {value!r}"
    )


def _total(name: str, devices: Sequence[Device]) -> int | None:
    found = next(
        (device for device in devices if device.name == name or (device.platform, name) == ("host", "host")), None
    )
    total = getattr(getattr(found, "description", None), "memory_bytes", None)
    return int(total) if total else None
