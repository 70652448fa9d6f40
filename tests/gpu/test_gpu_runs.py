"""Runs on a real GPU: random programs, capture, overlap of copies, the three ways of completion, CUDA's own paths."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np
import plait
import pytest
import trio
from plait import Graph, RunFailed, update
from plait.devices.gpu import driver
from plait.devices.gpu.completion import WAYS, tracker
from plait.devices.mark import Mark
from plait.devices.waiting import wait_mark
from plait.testing import random_program, run_serial, soak

pytestmark = pytest.mark.gpu
cupy: Any = pytest.importorskip("cupy", reason="needs CuPy", exc_type=ImportError)
if not cupy.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL("libamdhip64.so.7").hipcpu_control  # noqa: B018
    pytest.skip("the rig is no GPU", allow_module_level=True)

PLATFORM = driver.platform_name()
DEVICE = f"{PLATFORM}:0"
cuda = pytest.mark.skipif(PLATFORM != "cuda", reason="needs CUDA")


@pytest.mark.parametrize("streams", [1, 4])
def test_random_programs_equal_the_serial_oracle(streams: int) -> None:
    assert trio.run(soak, range(200), streams, 30, (None, DEVICE, PLATFORM))


def test_a_captured_plan_gives_the_same_results() -> None:
    async def main() -> None:
        async with plait.open_scheduler(streams=3) as scheduler:
            for seed in range(20):
                program = random_program(seed, 25, (DEVICE,))
                plan = scheduler.compile(program.graph).capture()
                for k in range(4):
                    inputs = {name: value + k for name, value in program.inputs.items()}
                    expected = await trio.to_thread.run_sync(lambda p=program, i=inputs: run_serial(p.graph, **i))
                    result = await scheduler.run(plan, inputs)
                    assert all(np.array_equal(result[name], value) for name, value in expected.items()), (seed, k)

    trio.run(main)


def test_large_arrays_pass_through_the_ring() -> None:
    x = np.arange(64 << 20, dtype=np.uint8).reshape(64, -1)[::-1, ::3]
    g = Graph()
    value = g.input("x")
    g.options(device=DEVICE).call(lambda v: v.__iadd__(1), update(value))
    g.output("x", value)
    assert np.array_equal(plait.run(g, x=x)["x"], x + np.uint8(1))


@pytest.mark.parametrize("way", list(WAYS))
def test_each_way_of_completion_reports_a_kernel(way: str) -> None:
    async def main() -> None:
        tracked = tracker(DEVICE, 0, way)
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(50):
                cupy.arange(1 << 20).sum()
            event = cupy.cuda.Event(block=True, disable_timing=True)
            event.record(stream)
        mark = Mark()
        tracked.follow(stream.ptr, event, mark)
        with trio.fail_after(30):
            await wait_mark(mark)
        tracked.close()

    trio.run(main)


@cuda
def test_the_asynchronous_allocator_is_respected() -> None:
    pool = cupy.cuda.MemoryAsyncPool()
    with cupy.cuda.using_allocator(pool.malloc):
        g = Graph()
        g.output("y", g.options(device=DEVICE).call(np.multiply, g.input("x"), 2))
        assert plait.run(g, x=np.ones(1000))["y"].sum() == 2000


def test_out_of_memory_is_an_error_of_the_item() -> None:
    g = Graph()
    g.output("y", g.options(device=DEVICE, name="greedy").call(lambda: cupy.zeros(1 << 44, dtype="int8")))
    with pytest.raises(RunFailed) as caught:
        plait.run(g)
    assert caught.value.exceptions[0].item == "greedy"
    assert isinstance(caught.value.exceptions[0].__cause__, plait.OutOfMemory)
