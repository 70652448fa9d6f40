"""What broke once: each fault of device runs as a test of its kind."""

import gc
import threading

import cupy
import numpy as np
import plait
import pytest
import rig
import trio
from plait import DeviceLost, Graph, RunFailed

ON = "hip:0"


class Box:
    """Something that plait cannot look into."""

    def __init__(self, array):
        self.array = array


def repeated(graph, inputs, **scheduler):
    """The outputs of a captured plan, run once for each mapping of inputs."""

    async def main():
        async with plait.open_scheduler(streams=2, **scheduler) as opened:
            plan = opened.compile(graph).capture()
            return [await opened.run(plan, each) for each in inputs]

    return trio.run(main)


def test_a_group_with_a_limit_sends_no_item_into_another_ones_stream():
    most, now, lock = [], [], threading.Lock()

    def count(value):
        with lock:
            now.append(1)
            most.append(len(now))
        result = value + 1
        with lock:
            now.pop()
        return result

    g = Graph()
    x = g.input("x", (50,), "float64")
    for k in range(6):
        value = x
        for _ in range(5):
            with g.group("narrow", limit=1):
                value = g.options(device=ON, priority=k % 2).call(count, value)
            value = g.options(device=ON).call(np.multiply, value, 2)
        g.output(f"y{k}", value)
    expected = np.zeros(50)
    for _ in range(5):
        expected = (expected + 1) * 2
    result = plait.run(g, x=np.zeros(50), scheduler={"streams": 3})
    assert all(np.array_equal(value, expected) for value in result.values())


def test_what_an_object_holds_is_waited_for_before_the_host_sees_it():
    g = Graph()
    boxed = g.options(device=ON).call(lambda v: Box(v + 1), g.input("x"))
    g.output("y", g.call(lambda box: box.array.get(stream=cupy.cuda.Stream(non_blocking=True)), boxed))
    plait.run(g, x=np.zeros(1000))
    rig.set_kernel_us(20_000)
    assert plait.run(g, x=np.ones(1000))["y"].tolist() == [2.0] * 1000


def test_what_a_host_item_makes_on_a_device_is_waited_for():
    def make(x):
        array = cupy.asarray(x)
        for _ in range(5):
            array = array + 1
        return array

    g = Graph()
    g.output("y", g.options(device=ON).call(np.multiply, g.call(make, g.input("x")), 2))
    plait.run(g, x=np.zeros(10))
    rig.set_kernel_us(10_000)
    assert plait.run(g, x=np.ones(10))["y"].tolist() == [12.0] * 10


def test_device_arrays_in_containers_and_constants_reach_host_items_as_numpy():
    g = Graph()
    x, w = g.input("x"), g.constant(cupy.ones(3), name="w")
    kinds = g.call(lambda parts, c: [type(parts["a"][0]), type(c)], x, w)
    g.output("kinds", kinds)
    g.output("there", g.options(device="hip:1").call(lambda parts, c: parts["a"][0] + c, x, w))
    g.output("w", w)
    result = plait.run(g, x={"a": [cupy.full(3, 4.0)]})
    assert result["kinds"] == [np.ndarray, np.ndarray]
    assert result["there"].tolist() == [5.0] * 3
    assert type(result["w"]) is np.ndarray


@pytest.mark.parametrize("dtype", [">f8", "<U3", "datetime64[D]", "longdouble", "O", ">i4"])
def test_a_dtype_that_no_device_has_comes_back_as_it_was(dtype):
    value = np.array(["1", "2"]).astype(dtype) if dtype != "datetime64[D]" else np.array(["2020-01-01"], dtype)
    g = Graph()
    g.output("y", g.options(device=ON).call(lambda v: v, g.input("x")))
    assert np.array_equal(plait.run(g, x=value)["y"], value)


def test_an_item_that_leaves_another_device_current_harms_no_other():
    def rude(value):
        result = value + 1
        cupy.cuda.Device(1).use()
        return result

    g = Graph()
    value = g.input("x")
    for _ in range(4):
        value = g.options(device=ON).call(rude, value)
    g.output("y", value)
    assert plait.run(g, x=np.zeros(4))["y"].tolist() == [4.0] * 4
    assert cupy.cuda.runtime.getDevice() == 0


def test_failed_runs_hold_no_device_memory():
    def bad(value):
        value = value + 1
        raise ValueError

    g = Graph()
    g.output("y", g.options(device=ON).call(bad, g.input("x")))
    pool = cupy.get_default_memory_pool()

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            gc.collect()
            before = pool.used_bytes()
            for _ in range(10):
                with pytest.raises(RunFailed):
                    await scheduler.run(g, x=np.ones(10_000))
            gc.collect()
            assert pool.used_bytes() == before

    trio.run(main)


def test_more_streams_than_a_byte_counts_can_be_traced():
    g = Graph()
    x = g.input("x")
    for k in range(40):
        g.output(f"y{k}", g.options(device=ON, priority=k % 3).call(np.add, x, k))
    result = plait.run(g, x=np.zeros(3), scheduler={"streams": 250, "trace": True})
    assert [result[f"y{k}"][0] for k in range(40)] == list(range(40))


@pytest.mark.parametrize("trace", [True, False])
def test_a_device_that_others_lost_is_refused_or_fails_the_run(trace):
    """The fault comes from the caller's own kernel: a run may meet it anywhere."""
    g = Graph()
    g.output("y", g.options(device=ON).call(np.add, g.input("x"), 1))
    plait.run(g, x=np.ones(4))
    rig.fail_async("kernel", rig.LAUNCH_FAILURE)
    with pytest.raises((cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)):
        x = cupy.ones(4) + 1
        cupy.cuda.Device(0).synchronize()
        del x
    with pytest.raises((DeviceLost, RunFailed)):
        plait.run(g, x=np.ones(4), scheduler={"trace": trace})
    rig.clear()
    assert plait.run(g, x=np.ones(4))["y"].tolist() == [2.0] * 4


# ---- capture ------------------------------------------------------------------------------------------------------


def test_plain_inputs_of_a_captured_plan_are_told_apart():
    g = Graph()
    with g.defaults(device=ON):
        g.output("y", g.call(np.add, g.call(lambda v, s: v / s, g.input("x"), g.input("s")), 0))
    scales = [2.0, 2.0, 0.0, 0.0, -0.0, 4, 4.0, np.float64(8)]
    results = repeated(g, [{"x": np.ones(2), "s": scale} for scale in scales])
    with np.errstate(divide="ignore"):
        assert [float(each["y"][0]) for each in results] == [float(np.float64(1) / scale) for scale in scales]


def test_an_input_that_can_change_in_place_is_not_captured():
    g = Graph()
    with g.defaults(device=ON):
        g.output("y", g.call(np.add, g.call(lambda v, s: v * s[0], g.input("x"), g.input("s")), 0))
    scale, found = bytearray(1), []

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            plan = scheduler.compile(g).capture()
            for k in range(5):
                scale[0] = k
                found.append((await scheduler.run(plan, x=np.ones(2), s=scale))["y"][0])

    trio.run(main)
    assert found == [0, 1, 2, 3, 4]


def test_an_object_that_a_captured_item_returns_is_new_each_time():
    g = Graph()
    with g.defaults(device=ON):
        g.output("y", g.call(Box, g.call(np.add, g.input("x"), 1)))
    boxes = [each["y"] for each in repeated(g, [{"x": np.full(2, float(k))} for k in range(5)])]
    assert [box.array.get()[0] for box in boxes] == [1, 2, 3, 4, 5]


def test_an_item_that_fails_while_captured_leaves_no_half_capture():
    calls = []

    def flaky(value):
        calls.append(1)
        if len(calls) in (2, 3):
            raise ValueError("on purpose")
        return value * 2

    g = Graph()
    with g.defaults(device=ON):
        value = g.call(flaky, g.call(np.add, g.input("x"), 1))
        g.output("y", g.call(np.add, value, 3))
    found = []

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            plan = scheduler.compile(g).capture()
            for k in range(6):
                try:
                    found.append((await scheduler.run(plan, x=np.full(4, float(k))))["y"][0])
                except RunFailed as error:
                    found.append(type(error.exceptions[0].__cause__))

    trio.run(main)
    assert [each for each in found if each is not ValueError] == [
        (k + 1) * 2 + 3 for k, each in enumerate(found) if each is not ValueError
    ]
    assert found.count(ValueError) <= 2


def test_no_item_behind_a_failed_one_runs_under_isolate():
    """On another device they are ready as soon as it is enqueued, and wait for room; then it fails."""
    ran, g = [], Graph()
    x = g.input("x", (50,), "float64")
    for k in range(70):
        g.output(f"w{k}", g.options(device="hip:1").call(np.add, x, k))
    made = g.options(device=ON, name="A").call(np.multiply, x, 2)
    for k in range(4):
        g.output(f"z{k}", g.options(device="hip:1").call(lambda v: (ran.append(1), v)[1], made))

    async def main():
        async with plait.open_scheduler(streams=1) as scheduler:
            await scheduler.run(g, x=np.zeros(50))
            ran.clear()
            with rig.held("compute", 1):
                with rig.held("compute", 0):
                    started = scheduler.start(g, x=np.zeros(50), on_error="isolate")
                    await trio.to_thread.run_sync(rig.wait_until_queued, "compute", 1, 0)
                    rig.fail_async("kernel", rig.LAUNCH_FAILURE)
                while started.progress.failed == 0:
                    await trio.sleep(0.001)
            return await started

    result = trio.run(main)
    assert {f"z{k}" for k in range(4)} <= set(result.missing)
    assert {f"w{k}" for k in range(70)} <= set(result)
