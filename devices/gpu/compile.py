"""A kernel's source compiled and loaded for the current device: once per device, name, source and options."""

from __future__ import annotations

import functools
import threading
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.devices.dimensions import Limits
from plait.devices.gpu import driver
from plait.devices.sources import Source, is_raw_kernel, module_path
from plait.errors import DeviceError

_MAX_THREADS, _MAX_DYNAMIC_SHARED = 0, 8  # function attributes, numbered alike by CUDA and HIP
_PORTABLE_CLUSTER = 8
_UNASKED_SHARED = 48 << 10  # bytes of dynamic shared memory that CUDA gives to any function

# Guards the table of what is compiled or being compiled: launching threads of any device meet here, and each must
# have its function before it can go on, so there is nobody to send a message to.
_LOCK = threading.Lock()
_TABLE: dict[Hashable, Future[Compiled]] = {}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function of one device: CuPy's ``function``, and what a launch of it may ask for."""

    function: Any
    device: str
    limits: Limits

    def admit_shared(self, nbytes: int) -> None:
        """Let launches use so much dynamic shared memory, where the driver wants to be asked."""
        if nbytes > _UNASKED_SHARED and driver.platform_name() == "cuda":
            driver.cupy().cuda.driver.funcSetAttribute(self.function.ptr, _MAX_DYNAMIC_SHARED, nbytes)


def compiled(name: str, source: Source, options: tuple[str, ...], ordinal: int) -> Compiled:
    """The function ``name`` for device ``ordinal``, which must be current; a second thread waits for the first.

    DeviceError with the compiler's log, whose line numbers are those of ``source``; the next call tries again.
    """
    path = module_path(source)
    if path is not None:
        try:
            source = Path(path).read_bytes()
        except OSError as raised:
            raise DeviceError(f"kernel {name!r}: its module cannot be read: {raised}") from raised
    key = (ordinal, name, source, options)
    with _LOCK:
        future = _TABLE.get(key)
        mine = future is None
        if future is None:
            future = _TABLE[key] = Future()
    if mine:
        try:
            future.set_result(_load(name, source, options, ordinal))
        except BaseException as raised:
            with _LOCK:
                del _TABLE[key]
            failed = isinstance(raised, Exception)
            future.set_exception(raised if failed else DeviceError(f"compiling kernel {name!r} was interrupted"))
            raise
    return future.result()


def _load(name: str, source: Source, options: tuple[str, ...], ordinal: int) -> Compiled:
    cupy = driver.cupy()
    device = f"{driver.platform_name()}:{ordinal}"
    try:
        if isinstance(source, bytes):
            module = cupy.cuda.function.Module()
            module.load(source)
            function = module.get_function(name)
        elif is_raw_kernel(source):
            function = source.kernel  # type: ignore[union-attr]
        else:
            assert isinstance(source, str)
            mangled = "<" in name or "::" in name or 'extern "C"' not in source
            names = (name,) if mangled else None
            function = cupy.RawModule(code=source, options=options, name_expressions=names).get_function(name).kernel
    except cupy.cuda.compiler.CompileException as raised:
        log = str(raised).replace(raised.name or "\0", "source")
        raise DeviceError(f"kernel {name!r} does not compile for {device}:\n{log.rstrip()}") from raised
    except Exception as raised:
        found = driver.translated(raised, device, f"loading kernel {name!r}")
        if found is raised:
            raise
        raise found from raised
    threads = cupy.cuda.driver.funcGetAttribute(_MAX_THREADS, function.ptr)
    return Compiled(function, device, _limits(ordinal, threads))


@functools.cache
def _limits(ordinal: int, threads: int) -> Limits:
    """The device's limits, with the items per group that a function has registers and bounds for."""
    found = driver.runtime().getDeviceProperties(ordinal)
    clusters = driver.platform_name() == "cuda" and found["major"] >= 9
    return Limits(
        items_per_group=min(threads, found["maxThreadsPerBlock"]),
        items=tuple(found["maxThreadsDim"]),
        groups=tuple(found["maxGridSize"]),
        groups_per_cluster=_PORTABLE_CLUSTER if clusters else 1,
        shared=max(found["sharedMemPerBlock"], found.get("sharedMemPerBlockOptin", 0)),
    )
