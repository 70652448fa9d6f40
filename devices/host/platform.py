"""The host platform: one device, its streams on two worker pools, its memory and its description."""

from __future__ import annotations

import functools
import itertools
import threading

from plait.devices.host.describe import HostDescription
from plait.devices.host.event import HostEvent
from plait.devices.host.memory import HostAllocator
from plait.devices.host.probe import describe, usable_cores
from plait.devices.host.stream import HostStream
from plait.devices.host.workers import WorkerPool
from plait.errors import DeviceError

COPY_WORKERS = 2  # a copy is bound by memory, and two saturate it on most machines


class HostDevice:
    """The machine that this process runs on.

    ``kind`` of a stream is ``compute`` or ``copy``: two pools of threads.
    """

    platform = "host"
    name = "host"
    ordinal = 0

    def __init__(self, *, compute_workers: int | None = None, copy_workers: int = COPY_WORKERS) -> None:
        compute = usable_cores() if compute_workers is None else compute_workers
        self.pools = {
            "compute": WorkerPool("plait compute", compute),
            "copy": WorkerPool("plait copy", copy_workers),
        }
        self.allocator = HostAllocator()
        self._numbers = itertools.count()
        # Guards the allocators: asked for from any thread, and who asks cannot wait.
        self._lock = threading.RLock()
        self._memory: dict[tuple[str, int | None], HostAllocator] = {("pageable", None): self.allocator}

    def __repr__(self) -> str:
        return f"<HostDevice {self.name}>"

    @functools.cached_property
    def description(self) -> HostDescription:
        """What the machine says of itself, read once."""
        return describe()

    def memory(self, space: str, *, node: int | None = None) -> HostAllocator:
        """The allocator of ``pageable``, ``pages`` or ``huge`` memory, of the last two on a NUMA node if asked for.

        On a machine with one node there is nothing to bind; DeviceError for a node that this machine does not have.
        """
        nodes = [each.ordinal for each in self.description.numa_nodes or ()] if node is not None else []
        if nodes and node not in nodes:
            raise DeviceError(f"this machine has the NUMA nodes {', '.join(map(str, nodes))}, not {node}")
        key = space, node if len(nodes) > 1 or space == "pageable" else None
        with self._lock:
            found = self._memory.get(key)
            if found is None:
                found = self._memory[key] = HostAllocator(space, node=key[1])
            return found

    def stream(self, *, priority: int = 0, kind: str = "compute", name: str | None = None) -> HostStream:
        """A new stream; streams are cheap and hold no thread. A larger priority is more urgent."""
        pool = self.pools.get(kind)
        if pool is None:
            raise DeviceError(f"a host stream is of kind {' or '.join(self.pools)}, not {kind!r}")
        if not isinstance(priority, int):
            raise DeviceError(f"a stream's priority is an integer, not {priority!r}")
        label = f"{self.name}/{kind}{next(self._numbers)}" if name is None else name
        return HostStream(self, pool, priority=priority, kind=kind, name=label)

    def event(self) -> HostEvent:
        """An event that is not recorded yet."""
        return HostEvent()


class HostPlatform:
    """Always there, always one device."""

    name = "host"
    absent: str | None = None

    def __init__(self, device: HostDevice | None = None) -> None:
        self._devices = (HostDevice() if device is None else device,)

    def devices(self) -> tuple[HostDevice, ...]:
        return self._devices


HOST = HostPlatform()
