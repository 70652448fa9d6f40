"""What the rig's own tests share: small kernels, their launch, memory of each kind."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

runtime = cupy.cuda.runtime

ADD = cupy.RawKernel('extern "C" __global__ void add(int* x, int n) { atomicAdd(x, n); }', "add")
DOUBLE = cupy.RawKernel('extern "C" __global__ void twice(int* x) { *x *= 2; }', "twice")


def stream(priority: int = 0) -> Any:
    return cupy.cuda.Stream(non_blocking=True, priority=priority)


def launch(kernel: Any, on: Any, *arguments: Any, blocks: Any = (1,), threads: Any = (1,), shared: int = 0) -> None:
    with on:
        kernel(blocks, threads, tuple(map(_typed, arguments)), shared_mem=shared)


def add(on: Any, x: Any, n: int = 1) -> None:
    launch(ADD, on, x, n)


def double(on: Any, x: Any) -> None:
    launch(DOUBLE, on, x)


def number(device: int = 0, value: int = 0) -> Any:
    """One int32 in a device's memory."""
    with cupy.cuda.Device(device):
        made = cupy.empty(1, "i4")
        made.set(np.array([value], "i4"))
        return made


def value(x: Any) -> int:
    """Of such a number, after all work of its device."""
    with x.device:
        x.device.synchronize()
        return int(x.get()[0])


def pinned(count: int, dtype: str = "u1") -> np.ndarray:
    memory = cupy.cuda.alloc_pinned_memory(count * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, count)


def _typed(argument: Any) -> Any:
    return np.int32(argument) if isinstance(argument, int) else argument
