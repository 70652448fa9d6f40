"""Memory limits on the rig's devices: out of core, leases of CuPy memory, failures, and nothing left behind."""

import gc
import sys
from pathlib import Path

import cupy
import numpy as np
import plait
import pytest
import rig
import trio
from plait.testing.soak import soak_memory

sys.path.insert(0, str(Path(__file__).parents[1] / "memory"))
import tiles

TILE = tiles.TILE_BYTES


def on_device(graph, device):
    """The same items, asked to run there."""
    for item in graph.items:
        item.options = plait.graph.options.merged(item.options, {"device": device})
    return graph


def used():
    gc.collect()  # what earlier tests left
    with cupy.cuda.Device(0):
        return cupy.get_default_memory_pool().used_bytes()


@pytest.mark.parametrize("streams", [1, 3])
async def test_a_product_four_times_as_large_as_the_device(streams):
    n, inputs = 6, {}
    room = 3 * n * n // 4
    graph = on_device(tiles.product(n, inputs), "hip:0")
    before = used()
    async with plait.open_scheduler(streams=streams, memory_limit={"hip:0": room * TILE}) as scheduler:
        run = scheduler.start(graph, inputs)
        with trio.fail_after(60):
            result = await run
    for name, expected in tiles.product_expected(n).items():
        assert np.array_equal(result[name], expected), name
    use = run.memory["hip:0"]
    assert use.peak <= room * TILE
    first_in, out = 2 * n * n, n * n
    moved = use.moved_in + use.moved_out + (first_in + out) * TILE
    assert moved <= 1.3 * (tiles.product_tiles_in(n, room) + out) * TILE
    assert used() == before


async def test_what_a_device_changed_is_written_back_and_comes_again():
    g = plait.Graph("dirty")
    accs = [g.buffer(f"acc{k}", tiles.SHAPE, "float64", fill=k) for k in range(8)]
    with g.defaults(device="hip:0"):
        for _ in range(3):
            for k, acc in enumerate(accs):
                g.call(add_to, plait.update(acc), k)
            g.barrier()
    for k, acc in enumerate(accs):
        g.output(f"acc{k}", acc)
    async with plait.open_scheduler(streams=2, memory_limit={"hip:0": 3 * TILE}) as scheduler:
        run = scheduler.start(g)
        with trio.fail_after(60):
            result = await run
    assert all(np.array_equal(result[f"acc{k}"], np.full(tiles.SHAPE, 4.0 * k)) for k in range(8))
    use = run.memory["hip:0"]
    assert use.peak <= 3 * TILE
    assert use.moved_out > 0 and use.moved_in > 0


def add_to(array, value):
    array += value


async def test_a_plan_tells_what_each_device_needs():
    g = on_device(tiles.product(4, {}), "hip:1")
    async with plait.open_scheduler() as scheduler:
        use = scheduler.compile(g).memory
    assert use["hip:1"].largest == 3 * TILE
    assert 3 * TILE < use["hip:1"].peak <= 48 * TILE
    assert use["host"].output == 16 * TILE
    async with plait.open_scheduler(memory_limit={"hip:1": 3 * TILE - 1}) as scheduler:
        with pytest.raises(plait.PlanError, match=r"needs 6144 bytes of hip:1 at once.*limit is 6143"):
            scheduler.start(g, {name: np.zeros(tiles.SHAPE) for name in g.program().inputs})


async def test_random_programs_in_hardly_enough_device_memory_equal_the_oracle():
    before = used()
    moved = await soak_memory(range(24), 2, devices=(None, "hip", "hip:0", "hip:1"))
    assert moved >= 5
    assert used() == before


async def test_a_lease_gives_its_task_memory_of_its_own_and_must_be_empty_at_its_end():
    before = cupy.cuda.get_allocator()
    async with plait.open_scheduler(memory_limit={"hip:0": 1 << 20}) as scheduler:
        async with scheduler.lease("hip:0", 100_000) as lease:
            array = cupy.zeros(10_000)
            assert lease.in_use >= 80_000
            with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
                cupy.zeros(10_000)
            await trio.to_thread.run_sync(lambda: cupy.zeros(20_000))  # another thread's memory is not the lease's
            del array
            assert lease.in_use == 0
        with pytest.raises(plait.PlaitError, match=r"ends with 1024 bytes in use: let go of the arrays"):
            async with scheduler.lease("hip:0", 100_000):
                left = cupy.zeros(128)
        del left

        async def other():
            assert cupy.zeros(4).sum() == 0

        async with scheduler.lease("hip:0", 100_000) as lease, trio.open_nursery() as nursery:
            await scheduler.run(tiled := on_device(tiles.product(2, inputs := {}), "hip:0"), inputs)
            assert tiled is not None
            nursery.start_soon(other)
        assert scheduler.memory["hip:0"].reserved == 0
    assert cupy.cuda.get_allocator() == before


async def test_a_device_lost_under_a_limit_fails_its_runs_and_keeps_nothing():
    n, inputs = 4, {}
    graph = on_device(tiles.product(n, inputs), "hip:0")
    try:
        rig.fail_async("kernel", rig.ILLEGAL_ADDRESS, 20)
        async with plait.open_scheduler(streams=2, memory_limit={"hip:0": 6 * TILE}) as scheduler:
            with trio.fail_after(60), pytest.raises(plait.RunFailed) as caught:
                await scheduler.run(graph, inputs)
            assert all(isinstance(error.__cause__, plait.DeviceError) for error in caught.value.exceptions)
            assert isinstance(caught.value.exceptions[0].__cause__, plait.DeviceLost)
            assert scheduler.memory["hip:0"].in_use == scheduler.memory["hip:0"].reserved == 0
    finally:
        rig.clear()


async def test_a_captured_plan_is_refused_under_a_limit():
    g = plait.Graph("captured")
    x = g.input("x", (100,), "float64")
    y = g.options(device="hip:0").call(np.multiply, x, 2.0)
    g.output("y", g.options(device="hip:0").call(np.add, y, 1.0))
    async with plait.open_scheduler(memory_limit=1 << 20) as scheduler:
        plan = scheduler.compile(g).capture()
        with pytest.raises(plait.PlanError, match="captured plan keeps its device memory"):
            scheduler.start(plan, x=np.zeros(100))


async def test_runs_side_by_side_share_the_replica_of_a_constant():
    weights = np.arange(4096.0)
    g = plait.Graph("shared")
    w = g.constant(weights, name="w")
    x = g.input("x", (4096,), "float64")
    g.output("y", g.options(device="hip:0").call(np.multiply, x, w))
    async with plait.open_scheduler(devices=["host", "hip:0"]) as scheduler:
        plan = scheduler.compile(g)
        with rig.traced() as operations:
            with rig.held("compute"):
                runs = [scheduler.start(plan, x=np.full(4096, float(k))) for k in range(4)]
                while any(run.progress.done < 2 for run in runs):  # both replicas, of all
                    await trio.lowlevel.checkpoint()
            for k, run in enumerate(runs):
                assert np.array_equal((await run)["y"], k * weights)
    copies = [each for each in operations if each.kind == "h2d" and each.nbytes >= weights.nbytes]
    assert len(copies) == 4 + 1


async def test_empty_results_are_waited_for_like_others():
    def none_of(array):
        for _ in range(20):
            array = array * 2.0
        return array[:0]

    g = plait.Graph("empty")
    x = g.input("x", (200_000,), "float64")
    for k in range(20):
        g.output(f"none{k}", g.options(device="hip:0").call(none_of, x))
    async with plait.open_scheduler(streams=2, trace=True) as scheduler:
        with trio.fail_after(60):
            result = await scheduler.run(g, x=np.zeros(200_000))
    assert all(value.shape == (0,) for value in result.values())
