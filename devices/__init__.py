"""Where it runs: platforms, devices, streams, events, memory. Start reading at ``protocol.py``."""

import sys
from types import ModuleType

from plait.devices.gpu.callers import carried, fetch, joins
from plait.devices.gpu.capture import Segment, Step
from plait.devices.gpu.device import GpuDevice
from plait.devices.gpu.driver import cupy
from plait.devices.gpu.memory import memory_info
from plait.devices.gpu.queue import LaunchQueue
from plait.devices.host import (
    HOST,
    HostAllocator,
    HostBlock,
    HostDescription,
    HostDevice,
    HostEvent,
    HostPlatform,
    HostStream,
    bounded_blas,
    usable_cores,
    worker_waits,
)
from plait.devices.kernel import Kernel
from plait.devices.mark import Mark
from plait.devices.platforms import device, devices, platforms, register
from plait.devices.protocol import Allocator, Block, Device, Event, EventStatus, Platform, Stream
from plait.devices.waiting import wait

__all__ = [
    "HOST",
    "Allocator",
    "Block",
    "Device",
    "Event",
    "EventStatus",
    "GpuDevice",
    "HostAllocator",
    "HostBlock",
    "HostDescription",
    "HostDevice",
    "HostEvent",
    "HostPlatform",
    "HostStream",
    "Kernel",
    "LaunchQueue",
    "Mark",
    "Platform",
    "Segment",
    "Step",
    "Stream",
    "bounded_blas",
    "carried",
    "cupy",
    "device",
    "devices",
    "fetch",
    "joins",
    "memory_info",
    "platforms",
    "register",
    "usable_cores",
    "wait",
    "worker_waits",
]


class _Callable(ModuleType):
    """This package is also the public function: ``plait.devices()`` lists the devices."""

    def __call__(self) -> tuple[Device, ...]:
        return devices()


sys.modules[__name__].__class__ = _Callable
