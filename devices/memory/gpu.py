"""A pool over a GPU's memory: its regions come from CuPy's allocator in force, and are there for every stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.devices.gpu import driver
from plait.devices.gpu.device import GpuDevice
from plait.devices.gpu.memory import GpuBlock
from plait.devices.memory.pool import Pool
from plait.devices.protocol import Block, Stream


class GpuRegions:
    """An ``Allocator`` of memory that no stream has work on.

    Pools under CuPy (its own, rmm) reuse memory in the order of the stream that asks. What is asked for here is asked
    for on a stream that nothing else uses, and is there for all once that stream is idle.
    """

    def __init__(self, device: GpuDevice, space: str = "device") -> None:
        self._memory = device.memory(space)
        self._stream = device.stream(name=f"{device.name}/regions")

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Stream | None = None) -> GpuBlock:
        """As ``GpuAllocator.allocate``; waits until the memory may be used by every stream."""
        block = self._memory.allocate(nbytes, alignment=alignment, stream=self._stream)
        driver.runtime().streamSynchronize(self._stream.queue.pointer)
        return block

    def free(self, block: Block, *, stream: Stream | None = None) -> None:
        """As ``GpuAllocator.free``."""
        self._memory.free(block, stream=stream)

    def statistics(self) -> Mapping[str, int]:
        """Those of the device's allocator."""
        return self._memory.statistics()


def gpu_pool(device: GpuDevice, space: str = "device", **options: Any) -> Pool:
    """A pool over ``device``, ``pinned`` or ``managed`` memory of a GPU; options as for ``Pool``."""
    return Pool(GpuRegions(device, space), name=f"{device.name} {space} memory", **options)
