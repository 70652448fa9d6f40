"""The host platform: CPU streams served by a few worker threads. Start reading at ``platform.py``."""

from plait.devices.host.blas import bounded_blas
from plait.devices.host.describe import Cache, HostDescription, HugePages, NumaNode
from plait.devices.host.event import HostEvent
from plait.devices.host.memory import HostAllocator, HostBlock
from plait.devices.host.platform import HOST, HostDevice, HostPlatform
from plait.devices.host.probe import usable_cores
from plait.devices.host.stream import HostStream
from plait.devices.host.workers import worker_waits

__all__ = [
    "HOST",
    "Cache",
    "HostAllocator",
    "HostBlock",
    "HostDescription",
    "HostDevice",
    "HostEvent",
    "HostPlatform",
    "HostStream",
    "HugePages",
    "NumaNode",
    "bounded_blas",
    "usable_cores",
    "worker_waits",
]
