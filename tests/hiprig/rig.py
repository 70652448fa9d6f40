"""Puts the rig in place before CuPy is imported, and steers it: hold engines, make calls fail, slow copies down."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hiprig.build import build

Engine = Literal["compute", "h2d", "d2h", "peer", "host"]
Work = Literal["kernel", "copy"]

OUT_OF_MEMORY = 2
ILLEGAL_ADDRESS = 700
LAUNCH_FAILURE = 719
NO_DEVICE = 100


@dataclass(frozen=True, slots=True)
class Span:
    """One operation that an engine, or a stream's host function, has run. Times in ns of the monotonic clock."""

    device: int
    stream: int
    kind: str
    name: str
    nbytes: int
    started_ns: int
    ended_ns: int


class _Runtime:
    """The rig's library in this process; set by enter()."""

    library: ctypes.CDLL | None = None


def environment(root: Path) -> dict[str, str]:
    """The variables that a process needs for the rig in ``root``; LD_LIBRARY_PATH serves processes started from it."""
    search = os.environ.get("LD_LIBRARY_PATH", "")
    lib = str(root / "lib")
    return {
        "ROCM_HOME": str(root),
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "CUPY_CACHE_DIR": str(root / "kernels"),
        "LD_LIBRARY_PATH": f"{lib}{os.pathsep}{search}" if search else lib,
    }


def enter(devices: int = 2) -> Path:
    """Build the rig if needed and make this process, and those it starts, use it. Again is harmless.

    ``devices`` counts only if HIPCPU_DEVICES is not set. Raises RuntimeError if CuPy was imported before,
    BuildError if the rig cannot be built.
    """
    root = build()
    if _Runtime.library is not None:
        return root
    if "cupy" in sys.modules:
        raise RuntimeError("rig.enter() must come before the first import of cupy")
    os.environ.setdefault("HIPCPU_DEVICES", str(devices))
    if os.environ.get("ROCM_HOME") != str(root):
        os.environ.update(environment(root))
    (runtime,) = (root / "lib").glob("libamdhip64.so.*")
    library = ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)  # first: the others are linked against it
    for path in (root / "lib").glob("*.so.*"):
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    library.hipcpu_control.argtypes = [ctypes.c_char_p]
    library.hipcpu_trace.restype = ctypes.c_char_p
    _Runtime.library = library
    return root


def _library() -> ctypes.CDLL:
    if _Runtime.library is None:
        raise RuntimeError("rig.enter() comes first")
    return _Runtime.library


def control(command: str) -> None:
    """Send one control command as the README lists them. Raises ValueError if the rig does not know it."""
    if _library().hipcpu_control(command.encode()) != 0:
        raise ValueError(f"the rig does not know the command {command!r}")


def hold(engine: Engine, device: int = 0) -> None:
    """Let the engine start nothing more until release(); what runs already goes on."""
    control(f"hold {engine} {device}")


def release(engine: Engine, device: int = 0) -> None:
    """Let a held engine go on."""
    control(f"release {engine} {device}")


@contextmanager
def held(engine: Engine, device: int = 0) -> Iterator[None]:
    """Hold the engine for a block, and release it whatever happens."""
    hold(engine, device)
    try:
        yield
    finally:
        release(engine, device)


def fail(call: str, status: int, nth: int = 1) -> None:
    """Make the nth next call of a HIP function, such as ``hipMalloc``, return ``status``; once."""
    control(f"fail {call} {status} {nth}")


def fail_async(kind: Work, status: int, nth: int = 1) -> None:
    """Make the nth kernel or copy from now on fail: its device then stays failed until clear()."""
    control(f"fail async:{kind} {status} {nth}")


def clear() -> None:
    """Forget the faults that are still to come, and heal failed devices."""
    control("clear")


def set_gbps(gbps: float) -> None:
    """Bandwidth of the copy engines, in GB/s (1e9 bytes); 0 is as fast as the machine copies."""
    control(f"set gbps {gbps}")


def set_kernel_us(duration_us: float) -> None:
    """The least time that a kernel takes, in microseconds."""
    control(f"set kernel_us {duration_us}")


def set_slots(slots: int) -> None:
    """How many kernels run at once on a device."""
    control(f"set slots {slots}")


def trace_on() -> None:
    """Start recording what runs, from an empty trace."""
    control("trace on")


def trace_off() -> None:
    """Stop recording, and drop what was recorded."""
    control("trace off")


def trace() -> list[Span]:
    """What has run since trace_on(), in the order in which it ended."""
    return [Span(*entry) for entry in json.loads(_library().hipcpu_trace())]


def reset() -> None:
    """Back to how the rig began: nothing held, no fault, engines at the speed of the environment, no trace."""
    for device in range(int(os.environ["HIPCPU_DEVICES"])):
        for engine in ("compute", "h2d", "d2h"):
            control(f"release {engine} {device}")
    clear()
    set_gbps(0)
    set_kernel_us(0)
    set_slots(4)
    trace_off()
