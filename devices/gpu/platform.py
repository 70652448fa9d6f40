"""The GPU platform: CUDA or HIP, whichever the installed CuPy was built for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from plait.devices.gpu import driver
from plait.devices.gpu.absent import absent_reason
from plait.devices.gpu.device import GpuDevice
from plait.devices.protocol import Device


class GpuPlatform:
    """One of ``cuda`` and ``hip``. Nothing of CuPy is imported before someone asks what there is."""

    # For the conformance suite: what it asks for and this platform does not promise.
    exempt: Mapping[str, str] = MappingProxyType(
        dict.fromkeys(
            ("test_elapsed_is_the_time_between", "test_elapsed_between_streams"),
            "device times leave out what the host does between two records",
        )
    )

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<GpuPlatform {self.name}>"

    @functools.cached_property
    def absent(self) -> str | None:
        """Why there are no devices, and what to install or free; None if there are some."""
        return absent_reason(self.name)

    @functools.cached_property
    def _devices(self) -> tuple[GpuDevice, ...]:
        if self.absent is not None:
            return ()
        return tuple(GpuDevice(self.name, ordinal) for ordinal in range(driver.runtime().getDeviceCount()))

    def devices(self) -> Sequence[Device]:
        return self._devices


CUDA = GpuPlatform("cuda")
HIP = GpuPlatform("hip")
