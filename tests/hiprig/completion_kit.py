"""What the tests of completion share: streams whose work the rig holds, and faults."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import numpy as np
import trio
from plait.devices.gpu.completion import Tracker
from plait.devices.mark import Mark
from rig import control

LAUNCH_FAILURE = 719
NOP = cupy.RawKernel('extern "C" __global__ void nop(int n) {}', "nop")


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Around each test: nothing stays held or failed."""
    NOP((1,), (1,), (np.int32(1),))  # compiles and loads it, on the first call
    yield
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        for engine in ("compute", "h2d", "d2h"):
            control(f"release {engine} {device}")
    control("clear")


class Stream:
    """A driver stream whose work can be held by its engine."""

    def __init__(self) -> None:
        self.driver = cupy.cuda.Stream(non_blocking=True)
        self.ptr: int = self.driver.ptr
        self._pinned = cupy.cuda.alloc_pinned_memory(64)
        self._device = cupy.cuda.alloc(64)

    def kernel(self) -> None:
        with self.driver:
            NOP((1,), (1,), (np.int32(1),))

    def upload(self) -> None:
        self._device.copy_from_host_async(ctypes.c_void_p(self._pinned.ptr), 64, self.driver)

    def record(self) -> Any:
        event = cupy.cuda.Event(block=True, disable_timing=True)
        event.record(self.driver)
        return event

    def follow(self, way: Tracker) -> Mark:
        mark = Mark()
        way.follow(self.ptr, self.record(), mark)
        return mark


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.sleep(0.001)


def fault(stream: Stream) -> None:
    """The device fails at the stream's next kernel."""
    control(f"fail async:kernel {LAUNCH_FAILURE} 1")
    stream.kernel()


def has_failed(stream: Stream) -> bool:
    """Whether the stream's device has."""
    return bool(cupy.cuda.runtime.streamQuery(stream.ptr) == LAUNCH_FAILURE)


def threads_at_work() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hip:0 ")]
