"""Where it runs: platforms, devices, streams, events, memory. Start reading at ``protocol.py``."""

from plait.devices.host import (
    HostAllocator,
    HostBlock,
    HostDescription,
    HostDevice,
    HostEvent,
    HostPlatform,
    HostStream,
    bounded_blas,
)
from plait.devices.mark import Mark
from plait.devices.platforms import device, devices, platforms, register
from plait.devices.protocol import Allocator, Block, Device, Event, EventStatus, Platform, Stream
from plait.devices.waiting import wait

__all__ = [
    "Allocator",
    "Block",
    "Device",
    "Event",
    "EventStatus",
    "HostAllocator",
    "HostBlock",
    "HostDescription",
    "HostDevice",
    "HostEvent",
    "HostPlatform",
    "HostStream",
    "Mark",
    "Platform",
    "Stream",
    "bounded_blas",
    "device",
    "devices",
    "platforms",
    "register",
    "wait",
]
