"""plait: a program as a DAG of work items over prioritized streams. Start reading at ``front.py``.

Names load when first used, so that importing the package, as every pytest with the plugin does, costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait import testing
    from plait.devices import Kernel, device, devices, wait
    from plait.devices.memory import Donation as donate
    from plait.devices.sim import machine
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
    from plait.front import run, run_async
    from plait.graph import Graph, read, update, uses, work, write
    from plait.scheduler import Outputs, Plan, Run, Scheduler, Trace, open_scheduler

    __version__: str

__all__ = [
    "DeviceError",
    "DeviceLost",
    "Graph",
    "GraphError",
    "Kernel",
    "OutOfMemory",
    "Outputs",
    "PlaitError",
    "Plan",
    "PlanError",
    "Run",
    "RunCancelled",
    "RunFailed",
    "Scheduler",
    "Trace",
    "WorkError",
    "__version__",
    "device",
    "devices",
    "donate",
    "machine",
    "open_scheduler",
    "read",
    "run",
    "run_async",
    "testing",
    "update",
    "uses",
    "wait",
    "work",
    "write",
]

_HOMES = {
    "Kernel device wait": "plait.devices",
    "donate": "plait.devices.memory",
    "machine": "plait.devices.sim",
    "PlaitError GraphError PlanError DeviceError DeviceLost": "plait.errors",
    "OutOfMemory WorkError RunFailed RunCancelled": "plait.errors",
    "run run_async": "plait.front",
    "Graph read update uses work write": "plait.graph",
    "Outputs Plan Run Scheduler Trace open_scheduler": "plait.scheduler",
}
_NAMED = {"donate": "Donation"}
_HOME = {name: home for names, home in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("devices", "graph", "scheduler", "testing", "errors"):
        return import_module(f"plait.{name}")
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module 'plait' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), _NAMED.get(name, name))
    return value


def _version() -> str:
    """The version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  it takes milliseconds

    try:
        return version("plait")
    except PackageNotFoundError:  # imported from its sources, which no installer has seen
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
