"""The driver as plait sees it: CuPy, imported when first needed, and what its status codes mean."""

from __future__ import annotations

import functools
from typing import Any

from plait.errors import DeviceError, DeviceLost, OutOfMemory

SUCCESS, NOT_READY = 0, 600
_OUT_OF_MEMORY = 2
# Codes of CUDA's and HIP's runtime after which the device's context answers nothing else any more.
_STICKY = frozenset({4, 46, 214, 219, 220, 226, 700, 702, 707, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999})


@functools.cache
def cupy() -> Any:
    """The CuPy module; ImportError where it is not installed or its libraries are missing."""
    import cupy as module  # noqa: PLC0415 - an extra, needed from here on

    return module


@functools.cache
def runtime() -> Any:
    """``cupy.cuda.runtime``."""
    return cupy().cuda.runtime


@functools.cache
def event_class() -> Any:
    """``cupy.cuda.Event``, whose arguments are ``block`` and ``disable_timing``."""
    return cupy().cuda.Event


@functools.cache
def platform_name() -> str:
    """``"hip"`` or ``"cuda"``, by what the installed CuPy was built for."""
    return "hip" if runtime().is_hip else "cuda"


def error(status: int, device: str, doing: str) -> DeviceError:
    """The plait error for a status: OutOfMemory, DeviceLost for what no later call survives, or DeviceError."""
    try:
        text = str(runtime().CUDARuntimeError(status))
    except Exception:  # a code that this driver has no words for
        text = f"driver status {status}"
    if status == _OUT_OF_MEMORY:
        return OutOfMemory(f"{doing} on {device}: {text}")
    if status in _STICKY:
        return DeviceLost(f"{doing} on {device}: {text}; the device's context is lost, and with it what was in flight")
    return DeviceError(f"{doing} on {device}: {text}")


def translated(raised: BaseException, device: str, doing: str) -> BaseException:
    """CuPy's own exceptions as plait errors with the original as cause; anything else as it is."""
    status = getattr(raised, "status", None)
    module = type(raised).__module__
    if module.startswith("cupy") and isinstance(status, int):
        found: BaseException = error(status, device, doing)
    elif module.startswith("cupy") and type(raised).__name__ == "OutOfMemoryError":
        found = OutOfMemory(f"{doing} on {device}: {raised}")
    else:
        return raised
    found.__cause__ = raised
    return found
