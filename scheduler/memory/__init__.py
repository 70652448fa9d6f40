"""Memory under a limit: who may hold how much where, what is moved out for whom, and how much a plan needs."""

from plait.scheduler.memory.arbiter import Arbiter
from plait.scheduler.memory.limits import MemoryLimit, checked_limits
from plait.scheduler.memory.residency import Residency
from plait.scheduler.memory.space import SpaceUse
from plait.scheduler.memory.usage import MemoryUse, plan_memory

__all__ = ["Arbiter", "MemoryLimit", "MemoryUse", "Residency", "SpaceUse", "checked_limits", "plan_memory"]
