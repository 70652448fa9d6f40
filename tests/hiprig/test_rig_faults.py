"""Faults on the rig: calls that fail, kernels and copies that lose their device, traps of kernels."""

from __future__ import annotations

import threading
from typing import Any

import cupy
import numpy as np
import pytest
import rig
from rig_kit import add, launch, number, pinned, runtime, stream, value

WAIT = 30
NOT_READY = 600

TRAPS = cupy.RawKernel(
    r"""
    #include <cassert>
    extern "C" __global__ void traps(int* x, int which) {
        if (which == 0) *(volatile int*)8 = 1;
        if (which == 1) assert(x == 0);
        if (which == 2) __trap();
        if (which == 3) {
            if (threadIdx.x < 16) __syncthreads();
            else __shfl(1, 0);
        }
    }
    """,
    "traps",
)


def test_calls_fail_as_often_as_asked() -> None:
    rig.fail("hipMalloc", rig.OUT_OF_MEMORY, 2)
    for _ in range(2):
        with pytest.raises(runtime.CUDARuntimeError, match="OutOfMemory"):
            runtime.malloc(64)
    runtime.free(runtime.malloc(64))


def test_the_pool_tries_again() -> None:
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    rig.fail("hipMalloc", rig.OUT_OF_MEMORY, 2)
    cupy.cuda.alloc(123_456)
    pool.free_all_blocks()
    rig.fail("hipMalloc", rig.OUT_OF_MEMORY, 3)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.cuda.alloc(123_456)


def test_a_kernel_that_fails_loses_its_device_until_cleared() -> None:
    on, x, fired, told = stream(), number(), [], threading.Event()

    def callback(_: Any, status: int, argument: str) -> None:
        fired.append((argument, status))
        told.set()

    rig.fail_async("kernel", rig.LAUNCH_FAILURE, nth=2)
    with rig.held("compute"):
        for _ in range(3):
            add(on, x)
        on.launch_host_func(fired.append, "host function")
        on.add_callback(callback, "callback")
        event = on.record()
    assert told.wait(WAIT)
    assert fired == [("callback", rig.LAUNCH_FAILURE)]
    assert runtime.eventQuery(event.ptr) == rig.LAUNCH_FAILURE
    assert not event.done
    for refused in (on.synchronize, event.synchronize, lambda: add(on, x), lambda: runtime.malloc(8), x.get):
        with pytest.raises((runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError), match="LaunchFailure"):
            refused()
    with cupy.cuda.Device(1):
        y = number(1)
        add(stream(), y)
    assert value(y) == 1
    rig.clear()
    on.synchronize()
    assert value(x) == 1


def test_a_copy_that_fails_loses_its_device() -> None:
    on, target, source = stream(), cupy.empty(64, "u1"), pinned(64)
    rig.fail_async("copy", rig.ILLEGAL_ADDRESS)
    target.set(source, stream=on)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        on.synchronize()


def test_a_pageable_copy_tells_its_own_failure() -> None:
    on, target, source = stream(), cupy.empty(64, "u1"), np.zeros(64, "u1")
    rig.fail_async("copy", rig.ILLEGAL_ADDRESS)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        target.set(source, stream=on)


def test_waits_for_a_lost_device_end() -> None:
    on, x = stream(), number()
    with cupy.cuda.Device(1):
        other, y = stream(), number(1)
    rig.fail_async("kernel", rig.LAUNCH_FAILURE)
    with rig.held("compute"):
        add(on, x)
        event = on.record()
        with cupy.cuda.Device(1):
            other.wait_event(event)
            add(other, y)
            assert runtime.streamQuery(other.ptr) == NOT_READY
    assert value(y) == 1


@pytest.mark.parametrize(
    ("which", "name"), [(0, "IllegalAddress"), (1, "Assert"), (2, "LaunchFailure"), (3, "LaunchFailure")]
)
def test_traps_of_kernels(which: int, name: str) -> None:
    on, x = stream(), number()
    launch(TRAPS, on, x, which, threads=(32,))
    with pytest.raises(runtime.CUDARuntimeError, match=name):
        on.synchronize()
    rig.clear()
    launch(TRAPS, on, x, 9, threads=(32,))
    on.synchronize()


def test_devices_that_do_not_exist() -> None:
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidDevice"):
        runtime.setDevice(99)


def test_a_fault_may_be_for_one_device() -> None:
    x, y = number(0), number(1)
    rig.fail_async("kernel", rig.LAUNCH_FAILURE, device=1)
    add(stream(), x)
    assert value(x) == 1
    with cupy.cuda.Device(1):
        on = stream()
        add(on, y)
        with pytest.raises(runtime.CUDARuntimeError, match="LaunchFailure"):
            on.synchronize()


def test_a_device_that_is_lost_runs_nothing_that_waits_for_a_held_engine() -> None:
    on, copies, x, target = stream(), stream(), number(), cupy.empty(64, "u1")
    with rig.held("compute"), rig.held("h2d"):
        add(on, x)
        target.set(pinned(64), stream=copies)
        event = on.record()
        rig.wait_until_queued("compute")
        rig.wait_until_queued("h2d")
        rig.lose(0)
        for refused in (on.synchronize, copies.synchronize, event.synchronize, lambda: runtime.malloc(8)):
            with pytest.raises((runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError), match="Unknown"):
                refused()
        with cupy.cuda.Device(1):
            cupy.zeros(4).sum()
    rig.clear()
    assert value(x) == 0


def test_only_the_first_loss_counts() -> None:
    rig.lose(0, rig.ILLEGAL_ADDRESS)
    rig.lose(0, rig.LAUNCH_FAILURE)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        runtime.deviceSynchronize()
