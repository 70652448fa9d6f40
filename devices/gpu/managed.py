"""Managed memory: where its pages should be, told to the driver ahead of use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plait.devices.gpu import driver
from plait.errors import DeviceError

if TYPE_CHECKING:
    from plait.devices.gpu.device import GpuDevice

# As CUDA's and HIP's enumerations number them.
ADVICE = {
    "read mostly": 1,
    "not read mostly": 2,
    "stay": 3,
    "stay anywhere": 4,
    "reached from": 5,
    "not reached from": 6,
}
_ON_HOST = -1


def prefetch(device: GpuDevice, address: int, nbytes: int, stream: Any, to: str) -> None:
    """Enqueue on ``stream`` that the pages be brought to ``to``: ``"device"`` or ``"host"``."""
    if to not in ("device", "host"):
        raise DeviceError(f"managed memory is prefetched to 'device' or 'host', not {to!r}")
    where = _ON_HOST if to == "host" else device.ordinal
    _call(device, driver.runtime().memPrefetchAsync, address, nbytes, where, stream.driver.ptr)


def advise(device: GpuDevice, address: int, nbytes: int, advice: str, of: str) -> None:
    """Tell the driver how the pages are used ``of`` (from, on): ``"device"`` or ``"host"``."""
    if advice not in ADVICE:
        raise DeviceError(f"advice for managed memory is one of {', '.join(map(repr, ADVICE))}, not {advice!r}")
    if of not in ("device", "host"):
        raise DeviceError(f"advice is about 'device' or 'host', not {of!r}")
    where = _ON_HOST if of == "host" else device.ordinal
    _call(device, driver.runtime().memAdvise, address, nbytes, ADVICE[advice], where)


def _call(device: GpuDevice, function: Callable[..., object], *args: int) -> None:
    if not args[1]:
        return
    try:
        with driver.cupy().cuda.Device(device.ordinal):
            function(*args)
    except Exception as error:
        raise device.noted(driver.translated(error, device.name, "managing pages")) from error
