"""Put CuPy on the rig, and steer the rig: hold engines, inject faults, set speeds, read what happened."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, get_args

HERE = Path(__file__).resolve().parent
RUNTIME = "libamdhip64.so.7"
Engine = Literal["compute", "h2d", "d2h", "peer", "host"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
LAUNCH_FAILURE, ILLEGAL_ADDRESS, OUT_OF_MEMORY, UNKNOWN = 719, 700, 2, 999


class Operation(NamedTuple):
    """What an engine did: times are of the rig's clock."""

    device: int
    stream: int
    kind: str
    name: str
    nbytes: int
    begin_ns: int
    end_ns: int


def environment(libraries: Path) -> dict[str, str]:
    """What CuPy must find in the environment to run on the rig whose libraries are in a folder."""
    path = os.environ.get("PATH", "")
    mine = str(HERE / "bin")
    return {
        "ROCM_HOME": str(HERE),
        "PATH": path if mine in path.split(os.pathsep) else f"{mine}{os.pathsep}{path}",
        "CUPY_CACHE_DIR": str(libraries.parent / "kernels"),
    }


def enter(devices: int = 2) -> None:
    """Build the rig if need be and load it into this process; before CuPy is imported.

    RuntimeError if CuPy is here already, without the rig.
    """
    if is_entered():
        return
    if "cupy" in sys.modules:
        raise RuntimeError("CuPy was imported before the rig was entered")
    libraries = _build()
    os.environ.update(environment(libraries))
    os.environ.setdefault("HIPCPU_DEVICES", str(devices))
    os.environ.setdefault("HIPCPU_POISON", "1")
    names = sorted(path.name for path in libraries.glob("*.so.*"))
    for name in [RUNTIME, *(name for name in names if name != RUNTIME)]:
        ctypes.CDLL(str(libraries / name), ctypes.RTLD_GLOBAL)


def is_entered() -> bool:
    """Whether the rig's runtime is loaded into this process."""
    return _library() is not None


def command_environment(devices: int = 2) -> dict[str, str]:
    """The environment for a child process that runs on the rig, by the loader's path."""
    libraries = _build()
    return {
        **os.environ,
        **environment(libraries),
        "LD_LIBRARY_PATH": str(libraries),
        "HIPCPU_DEVICES": os.environ.get("HIPCPU_DEVICES", str(devices)),
        "HIPCPU_POISON": os.environ.get("HIPCPU_POISON", "1"),
    }


def control(command: str) -> None:
    """Give the rig a command; the README lists them. ValueError if it does not obey."""
    library = _library()
    if library is None:
        raise RuntimeError("the rig is not loaded")
    if library.hipcpu_control(command.encode()) != 0:
        raise ValueError(f"the rig does not obey {command!r}")


def hold(engine: Engine, device: int = 0, *, after: int = 0) -> None:
    """Let an engine finish what it is at, begin ``after`` more operations, and then nothing until it is released."""
    control(f"hold {engine} {device} after {after}")


def release(engine: Engine, device: int = 0) -> None:
    """Let a held engine go on."""
    control(f"release {engine} {device}")


def wait_until_queued(engine: Engine, count: int = 1, device: int = 0) -> None:
    """Wait until operations of ``count`` streams wait for an engine; ValueError if they do not come within 30 s."""
    control(f"await {engine} {device} {count}")


@contextmanager
def held(engine: Engine, device: int = 0, *, after: int = 0) -> Iterator[None]:
    """An engine held inside the block."""
    hold(engine, device, after=after)
    try:
        yield
    finally:
        release(engine, device)


def fail(call: str, status: int, count: int = 1) -> None:
    """Let the next ``count`` calls of a runtime function answer with a status."""
    for _ in range(count):
        control(f"fail {call} {status} 1")


def fail_async(kind: Literal["kernel", "copy"], status: int, nth: int = 1, *, device: int | None = None) -> None:
    """Let the ``nth`` kernel or copy that begins from now, on any or one device, fail; its device is lost from then."""
    where = "" if device is None else f":{device}"
    control(f"fail async:{kind}{where} {status} {nth}")


def lose(device: int, status: int = UNKNOWN) -> None:
    """Lose a device at once: what it has not begun never runs, and calls answer with the status."""
    control(f"lose {device} {status}")


def clear() -> None:
    """Forget faults; lost devices answer again."""
    control("clear")


def restore() -> None:
    """Nothing held, nothing failed, speeds and memory as the environment has them."""
    for device in range(int(os.environ.get("HIPCPU_DEVICES", "2"))):
        for engine in ENGINES:
            release(engine, device)
    clear()
    set_gbps(float(os.environ.get("HIPCPU_GBPS", "0")))
    set_gbps(0, "compute")
    set_kernel_us(float(os.environ.get("HIPCPU_KERNEL_US", "0")))
    set_slots(int(os.environ.get("HIPCPU_SLOTS", "4")))
    for engine in ("h2d", "d2h", "peer"):
        set_slots(1, engine)
    set_memory_mb(int(os.environ.get("HIPCPU_MEM_MB", "2048")))


def set_gbps(gbps: float, engine: Engine | None = None, device: int | None = None) -> None:
    """Bandwidth of the copies of an engine, or of h2d, d2h and peer, in 10^9 bytes a second; 0: as fast as memory is.

    Copies within a device and fills are the business of ``compute``. Without a device, of all.
    """
    for name in ("h2d", "d2h", "peer") if engine is None else (engine,):
        control(f"set gbps {gbps} {name}{_of(device)}")


def set_kernel_us(microseconds: float) -> None:
    """Least time of each kernel."""
    control(f"set kernel_us {microseconds}")


def set_slots(slots: int, engine: Engine = "compute", device: int | None = None) -> None:
    """How many operations an engine of a device, or of each, runs side by side."""
    control(f"set slots {slots} {engine}{_of(device)}")


def set_memory_mb(mebibytes: int, device: int | None = None) -> None:
    """How much memory a device, or each, has to give: at most HIPCPU_MEM_MB. What is in use stays so."""
    control(f"set memory_mb {mebibytes}{_of(device)}")


def _of(device: int | None) -> str:
    return "" if device is None else f" {device}"


@contextmanager
def traced() -> Iterator[list[Operation]]:
    """What the rig's engines did inside the block, in order of beginning; the list is filled when it ends."""
    found: list[Operation] = []
    library = _library()
    if library is None:
        raise RuntimeError("the rig is not loaded")
    control("trace on")
    try:
        yield found
    finally:
        entries = [Operation(*entry) for entry in json.loads(library.hipcpu_trace())]
        found.extend(sorted(entries, key=lambda entry: entry.begin_ns))
        control("trace off")  # which forgets it


def _build() -> Path:
    spec = importlib.util.spec_from_file_location("hiprig_build", HERE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return Path(module.build())


def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(RUNTIME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        library.hipcpu_control.argtypes = [ctypes.c_char_p]
        library.hipcpu_trace.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return None
    return library
