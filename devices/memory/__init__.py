"""Memory: a pool over any allocator, and a plan's buffers by index. Start reading at ``pool.py``."""

from plait.devices.memory.allocator import PoolBlock, PooledAllocator
from plait.devices.memory.behind import behind
from plait.devices.memory.buffers import BufferAllocations, Donation
from plait.devices.memory.gpu import GpuRegions, gpu_pool
from plait.devices.memory.pool import NOTHING, Pool
from plait.devices.memory.report import PoolStatistics, format_bytes, out_of_memory

__all__ = [
    "NOTHING",
    "BufferAllocations",
    "Donation",
    "GpuRegions",
    "Pool",
    "PoolBlock",
    "PoolStatistics",
    "PooledAllocator",
    "behind",
    "format_bytes",
    "gpu_pool",
    "out_of_memory",
]
