"""Runs on the rig's devices: bytes, order, overlap with held engines, failures, and what is left behind."""

import asyncio
import threading

import cupy
import numpy as np
import plait
import pytest
import rig
import trio
import trio.testing
from plait import DeviceLost, Graph, OutOfMemory, RunCancelled, RunFailed, update
from plait.testing import check_plan, random_program, run_serial, soak
from rig import control

LOST = 719


def run(graph, /, scheduler=None, **inputs):
    return plait.run(graph, inputs, scheduler={"streams": 2, **(scheduler or {})})


def pipeline(count=1, device="hip:0"):
    g = Graph("pipeline")
    x = g.input("x", shape=(1000,), dtype="float64")
    for k in range(count):
        g.output(f"y{k}", g.options(device=device).call(np.multiply, x, k + 2.0))
    return g


# ---- bytes --------------------------------------------------------------------------------------------------------


def test_an_item_gets_device_arrays_and_its_result_comes_back_as_numpy():
    seen = []

    def double(array):
        seen.append((type(array), array.device.id, cupy.cuda.get_current_stream().ptr))
        return array * 2

    g = Graph()
    g.output("y", g.options(device="hip:1").call(double, g.input("x")))
    x = np.arange(6.0).reshape(2, 3)
    y = run(g, x=x)["y"]
    assert type(y) is np.ndarray
    assert np.array_equal(y, x * 2)
    ((kind, ordinal, pointer),) = seen
    assert (kind, ordinal) == (cupy.ndarray, 1)
    assert pointer != cupy.cuda.Stream.null.ptr


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((0, 3)),
        np.array(5, dtype="int8"),
        np.arange(24).reshape(2, 3, 4)[::-1, :, ::2],
        np.arange(6.0).reshape(2, 3).T,
        np.array([1 + 2j, 3]),
        np.array([True, False]),
        7,
        "text",
        None,
        [np.arange(3), {"deep": (np.ones(2), 4)}],
    ],
    ids=["empty", "0-d", "strided", "fortran", "complex", "bool", "int", "str", "none", "nested"],
)
def test_whatever_crosses_comes_back_as_it_was(value):
    g = Graph()
    g.output("y", g.options(device="hip:0").call(lambda v: v, g.input("x")))
    y = run(g, x=value)["y"]
    assert type(y) is (np.ndarray if isinstance(value, np.ndarray) else type(value))
    if isinstance(value, list):
        assert np.array_equal(y[0], value[0])
        assert np.array_equal(y[1]["deep"][0], value[1]["deep"][0])
    else:
        assert np.array_equal(y, value)


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("devices", [("hip:0",), (None, "hip:0", "hip:1"), (None, "hip")], ids=["one", "two", "spread"])
def test_random_programs_equal_the_serial_oracle(streams, devices):
    assert trio.run(soak, range(120), streams, 30, devices)


def test_every_plan_of_the_soak_is_proved():
    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            for seed in range(40):
                check_plan(scheduler.compile(random_program(seed, 25, (None, "hip:0", "hip:1")).graph))

    trio.run(main)


def test_a_graph_item_on_the_host_waits_for_the_device_and_the_other_way_round():
    g = Graph()
    value = g.input("x")
    for _ in range(10):
        value = g.options(device="hip:0").call(np.add, value, 1)
        value = g.call(np.multiply, value, 2)
        value = g.options(device="hip:1").call(np.subtract, value, 1)
    g.output("y", value)
    expected = 0.0
    for _ in range(10):
        expected = (expected + 1) * 2 - 1
    assert run(g, x=np.zeros(100))["y"].tolist() == [expected] * 100


def test_device_arrays_as_inputs_start_behind_their_streams():
    """The caller's kernels are held; the run takes its inputs and must not read them before."""
    g = Graph()
    x = g.input("x", shape=(1000,), dtype="float64")
    g.output("there", g.options(device="hip:0").call(np.add, x, 1))
    g.output("here", g.call(np.add, x, 2))

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
                with stream:
                    mine = cupy.zeros(1000)
                    stream.synchronize()
                    control("hold compute 0")
                    mine += 5
                    started = scheduler.start(g, x=mine)
                await trio.testing.wait_all_tasks_blocked()
                control("release compute 0")
                result = await started
                assert result["there"].tolist() == [6.0] * 1000
                assert result["here"].tolist() == [7.0] * 1000

    trio.run(main)


def test_device_arrays_as_inputs_from_a_notebook_start_behind_their_streams():
    """Where a loop is running, the run has a thread of its own, and the caller's stream is still heeded."""
    g = Graph()
    g.output("y", g.options(device="hip:0").call(np.add, g.input("x"), 1))
    run(g, x=np.zeros(10))

    async def main():
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            mine = cupy.zeros(10)
            stream.synchronize()
            control("hold compute 0")
            mine += 5
            started = asyncio.ensure_future(plait.run_async(g, x=mine))
            await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, control, "release compute 0")
        return await started

    assert asyncio.run(main())["y"].tolist() == [6.0] * 10


def test_an_input_that_the_graph_updates_stays_the_callers():
    g = Graph()
    x = g.input("x", shape=(10,), dtype="float64")
    g.options(device="hip:0").call(lambda v: v.__iadd__(1), update(x))
    g.output("x", x)
    for mine in (np.zeros(10), cupy.zeros(10)):
        assert run(g, x=mine)["x"].tolist() == [1.0] * 10
        assert float(mine.sum()) == 0.0


def test_the_callers_device_and_stream_are_as_they_were():
    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream(non_blocking=True)
    allocator = cupy.cuda.get_allocator()
    with cupy.cuda.Device(1), stream:
        run(pipeline(4, "hip"), x=np.ones(1000))
        assert cupy.cuda.runtime.getDevice() == 1
        assert cupy.cuda.get_current_stream().ptr == stream.ptr
    assert cupy.cuda.get_allocator() == allocator


# ---- order --------------------------------------------------------------------------------------------------------


def test_device_items_are_enqueued_without_the_host_in_between():
    """With the device held, a chain over two devices is enqueued to its end."""
    enqueued = threading.Event()

    def last(value):
        enqueued.set()
        return value + 1

    g = Graph()
    value = g.input("x")
    for k in range(6):
        value = g.options(device=f"hip:{k % 2}").call(np.add, value, 1)
    g.output("y", g.options(device="hip:0").call(last, value))
    run(g, x=np.zeros(4))  # compiles the kernels
    enqueued.clear()

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            control("hold compute 0")
            started = scheduler.start(g, x=np.zeros(4))
            assert await trio.to_thread.run_sync(enqueued.wait, 30)
            assert not started.done
            control("release compute 0")
            assert (await started)["y"].tolist() == [7.0] * 4

    trio.run(main)


def test_an_output_is_there_before_the_run_ends():
    g = pipeline(1)
    g.output("late", g.options(device="hip:1").call(np.add, g.input("z"), 1))

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            await scheduler.run(g, x=np.ones(1000), z=np.ones(3))
            control("hold compute 1")
            started = scheduler.start(g, x=np.ones(1000), z=np.ones(3))
            assert (await started.output("y0"))[0] == 2.0
            assert not started.done
            control("release compute 1")
            await started

    trio.run(main)


def test_many_runs_side_by_side_give_their_own_bytes():
    g = pipeline(3, "hip")

    async def main():
        async with plait.open_scheduler(streams=3) as scheduler:
            plan = scheduler.compile(g)
            runs = [scheduler.start(plan, x=np.full(1000, float(k)), priority=k % 3) for k in range(60)]
            for k, each in enumerate(runs):
                assert (await each)["y2"][7] == 4.0 * k

    trio.run(main)


# ---- failures -----------------------------------------------------------------------------------------------------


def test_a_python_error_in_a_device_item_names_the_place():
    def broken(value):
        raise ZeroDivisionError("on purpose")

    g = Graph()
    g.output("y", g.options(device="hip:1", name="culprit").call(broken, g.input("x")))
    with pytest.raises(RunFailed) as caught:
        run(g, x=np.ones(3))
    (error,) = caught.value.exceptions
    assert (error.item, error.device) == ("culprit", "hip:1")
    assert error.stream.startswith("hip:1/compute")
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "test_device_runs.py" in error.site


def test_a_lost_device_fails_what_was_in_flight_first_suspect_first_and_the_next_run_is_refused():
    g = pipeline(4)
    run(g, x=np.ones(1000))
    control(f"fail async:kernel {LOST} 1")
    with pytest.raises(RunFailed) as caught:
        run(g, x=np.ones(1000))
    assert all(isinstance(error.__cause__, DeviceLost) for error in caught.value.exceptions)
    assert caught.value.exceptions[0].device == "hip:0"
    with pytest.raises(DeviceLost, match="hip:0 is lost since"):
        run(g, x=np.ones(1000))
    control("clear")
    assert run(g, x=np.ones(1000))["y3"][0] == 5.0


def test_debug_synchronous_pinpoints_the_item():
    def step(value, k):
        if k == at:
            control(f"fail async:kernel {LOST} 1")
        return value + 1

    g = Graph()
    value, at = g.input("x"), -1
    for k in range(6):
        value = g.options(device="hip:0", name=f"step{k}").call(step, value, k)
    g.output("y", value)
    run(g, x=np.ones(10))
    at = 3
    with pytest.raises(RunFailed) as caught:
        plait.run(g, x=np.ones(10), debug="synchronous")
    assert caught.value.exceptions[0].item == "step3"


def test_other_devices_finish_under_isolate():
    g = Graph()
    x = g.input("x")
    g.output("bad", g.options(device="hip:0").call(np.add, x, 1))
    g.output("good", g.options(device="hip:1").call(np.add, x, 1))
    run(g, x=np.ones(10))
    control("hold compute 0")

    async def main():
        async with plait.open_scheduler(streams=1) as scheduler:
            started = scheduler.start(g, x=np.ones(10), on_error="isolate")
            assert (await started.output("good"))[0] == 2.0
            control(f"fail async:kernel {LOST} 1")
            control("release compute 0")
            return await started

    result = trio.run(main)
    assert set(result) == {"good"}
    assert result.missing == ("bad",)
    assert isinstance(result.failed[0].__cause__, DeviceLost)


def test_what_depends_on_a_lost_device_is_not_passed_on():
    """hip:1 has computed with what hip:0 never made: its item must not count as done."""
    g = Graph()
    made = g.options(device="hip:0").call(np.add, g.input("x"), 1)
    g.output("y", g.options(device="hip:1").call(np.multiply, made, 2))
    run(g, x=np.ones(10))
    control(f"fail async:kernel {LOST} 1")

    async def main():
        async with plait.open_scheduler(streams=1) as scheduler:
            return await scheduler.run(g, x=np.ones(10), on_error="isolate")

    assert trio.run(main).missing == ("y",)


def test_out_of_memory_is_an_error_of_the_item():
    g = Graph("hungry")
    kept = g.options(device="hip:0").call(np.add, g.input("x"), 1)
    g.output("y", g.options(device="hip:0", name="greedy").call(lambda _: cupy.zeros(1 << 44, dtype="int8"), kept))
    with pytest.raises(RunFailed) as caught:
        run(g, x=np.ones(1 << 16))
    assert caught.value.exceptions[0].item == "greedy"
    cause = caught.value.exceptions[0].__cause__
    assert isinstance(cause, OutOfMemory)
    assert "512 KiB  'add#0' of graph 'hungry'" in str(cause)


def test_a_cancelled_run_leaves_nothing_in_flight():
    launched = threading.Event()

    def work(value):
        value = value + 1
        launched.set()
        return value

    g = Graph()
    x = g.input("x")
    for k in range(8):
        g.output(f"y{k}", g.options(device="hip").call(work, x))

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            await scheduler.run(g, x=np.ones(1000))
            launched.clear()
            for device in (0, 1):
                control(f"hold compute {device}")
            started = scheduler.start(g, x=np.ones(1000))
            assert await trio.to_thread.run_sync(launched.wait, 30)
            started.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert not started.done, "a device that works on its buffers is waited for"
            for device in (0, 1):
                control(f"release compute {device}")
            with pytest.raises(RunCancelled):
                await started

    trio.run(main)


def test_nothing_stays_allocated():
    pool = cupy.get_default_memory_pool()
    program = random_program(3, 40, ("hip:0", "hip:1"))
    run_serial(program.graph, **program.inputs)

    def used():
        found = []
        for device in (0, 1):
            with cupy.cuda.Device(device):
                found.append(pool.used_bytes())
        return found

    plait.run(program.graph, program.inputs)
    before = used()
    for _ in range(10):
        plait.run(program.graph, program.inputs)
    assert used() == before


# ---- capture ------------------------------------------------------------------------------------------------------


def test_a_captured_plan_gives_the_same_results_from_one_launch():
    g = Graph()
    x = g.input("x", shape=(100,), dtype="float64")
    total = g.buffer("total", (100,), fill=1)
    with g.defaults(device="hip:0"):
        value = x
        for k in range(10):
            value = g.call(np.add, value, float(k))
        g.call(lambda t, v: t.__iadd__(v), update(total), value)
    g.output("y", value)
    g.output("total", total)

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            plan = scheduler.compile(g).capture()
            for k in range(11):
                with rig.traced() as trace:
                    result = await scheduler.run(plan, x=np.full(100, float(k)))
                assert result["y"].tolist() == [45.0 + k] * 100
                assert result["total"].tolist() == [46.0 + k] * 100
                graphs = [operation.kind for operation in trace].count("graph")
                assert graphs == (k > 0), "the first run calls, the others launch one graph"
            (segment,) = [item.segment for item in plan.work if item.kind == "segment"]
            assert segment.launches == 10
            assert not segment.refused

    trio.run(main)


def test_what_cannot_be_captured_is_named_and_called_between_graphs():
    g = Graph()
    with g.defaults(device="hip:0"):
        doubled = g.call(np.multiply, g.input("x"), 2)
        count = g.options(name="looks").call(lambda v: int(v.sum()), doubled)
        g.output("y", g.call(lambda v, n: v + n, g.call(np.add, doubled, 1), count))

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            plan = scheduler.compile(g).capture()
            for k in range(5):
                result = await scheduler.run(plan, x=np.full(4, k))
                assert result["y"].tolist() == [2 * k + 1 + 8 * k] * 4
            assert "looks is called between graphs" in plan.explain()

    trio.run(main)


def test_a_captured_plan_takes_other_shapes_and_runs_side_by_side():
    g = Graph()
    with g.defaults(device="hip:0"):
        g.output("y", g.call(np.multiply, g.call(np.add, g.input("x"), 1), 2))

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            plan = scheduler.compile(g).capture()
            for size in (3, 3, 5, 5, 3):
                runs = [scheduler.start(plan, x=np.full(size, float(k)), priority=k) for k in range(4)]
                for k, each in enumerate(runs):
                    assert (await each)["y"].tolist() == [2.0 * (k + 1)] * size

    trio.run(main)


def test_random_programs_captured_equal_the_serial_oracle():
    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            for seed in range(40):
                program = random_program(seed, 25, ("hip:0", "hip:0", "hip:1", None))
                plan = scheduler.compile(program.graph).capture()
                for k in range(3):
                    inputs = {name: value + k for name, value in program.inputs.items()}
                    expected = await trio.to_thread.run_sync(lambda p=program, i=inputs: run_serial(p.graph, **i))
                    result = await scheduler.run(plan, inputs)
                    for name, value in expected.items():
                        assert np.array_equal(result[name], value), (seed, k, name)

    trio.run(main)


def test_nothing_to_capture_is_said():
    async def main():
        async with plait.open_scheduler(streams=1) as scheduler:
            with pytest.raises(plait.PlanError, match="can be captured"):
                scheduler.compile(pipeline(1)).capture()

    trio.run(main)
