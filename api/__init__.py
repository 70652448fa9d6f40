"""plait: a program as a DAG of work items over prioritized streams. Start reading at ``front.py``."""

from plait.errors import (
    DeviceError,
    DeviceLost,
    GraphError,
    OutOfMemory,
    PlaitError,
    PlanError,
    RunCancelled,
    RunFailed,
    WorkError,
)

__all__ = [
    "DeviceError",
    "DeviceLost",
    "GraphError",
    "OutOfMemory",
    "PlaitError",
    "PlanError",
    "RunCancelled",
    "RunFailed",
    "WorkError",
]
