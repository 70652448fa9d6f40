"""Device memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.devices.protocol import Block, Stream
from plait.errors import DeviceError


class GpuAllocator:
    """Through CuPy."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Stream | None = None) -> Block:
        raise DeviceError("not yet")

    def free(self, block: Block, *, stream: Stream | None = None) -> None:
        raise DeviceError("not yet")

    def statistics(self) -> Mapping[str, int]:
        return {}
