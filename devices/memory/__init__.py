"""Memory: a pool over any allocator, a plan's buffers by index, pages of the host. Start reading at ``pool.py``."""

from plait.devices.memory.behind import behind
from plait.devices.memory.pool import NOTHING, Pool
from plait.devices.memory.report import PoolStatistics, format_bytes, out_of_memory

__all__ = ["NOTHING", "Pool", "PoolStatistics", "behind", "format_bytes", "out_of_memory"]
