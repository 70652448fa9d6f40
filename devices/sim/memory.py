"""Memory of simulated devices: only counted in runs, and real bytes of the host for streams without a scheduler."""

from __future__ import annotations

from typing import Any

import numpy as np
from plait.devices.host.memory import HostAllocator, HostBlock
from plait.errors import OutOfMemory


class SimArray(np.ndarray[Any, Any]):
    """An array that stands for one in a simulated device's memory."""


class SimBlock(HostBlock):
    """Bytes of the host that stand for a device's."""

    __slots__ = ()

    def array(self, shape: int | tuple[int, ...], dtype: Any = np.uint8) -> SimArray:
        """The block's first bytes as an array; DeviceError if there are too few or the block is freed."""
        return super().array(shape, dtype).view(SimArray)


class SimAllocator(HostAllocator):
    """A device's memory, with its limit."""

    block_class = SimBlock


class Tally:
    """Bytes of one memory space: in use, their peak, the limit if there is one."""

    __slots__ = ("in_use", "limit", "name", "peak", "refused")

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self.limit = limit
        self.in_use = self.peak = self.refused = 0

    def take(self, nbytes: int) -> None:
        """So many bytes more; OutOfMemory if they do not fit."""
        wanted = self.in_use + nbytes
        if self.limit is not None and wanted > self.limit:
            self.refused += 1
            raise OutOfMemory(
                f"{self.name} (simulated) cannot serve {nbytes} bytes: {self.in_use} bytes in use, "
                f"limit {self.limit} bytes, peak {self.peak}"
            )
        self.in_use = wanted
        self.peak = max(self.peak, wanted)

    def give(self, nbytes: int) -> None:
        """So many bytes less."""
        self.in_use -= nbytes
