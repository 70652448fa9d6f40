"""Kernels from source through the real CuPy: compiled, bound, launched and refused on the rig's devices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import plait
import pytest
from completion_kit import control, restored
from numpy.testing import assert_allclose, assert_array_equal
from plait import DeviceError, DeviceLost, Kernel, PlanError
from plait.devices import library
from plait.devices.gpu import compile as compiling

cupy: Any = pytest.importorskip("cupy", reason="needs CuPy on the rig", exc_type=ImportError)
two_devices = pytest.mark.skipif(cupy.cuda.runtime.getDeviceCount() < 2, reason="needs two devices")

SAXPY = """
extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


def saxpy_on_host(a: np.float32, x: np.ndarray, y: np.ndarray, n: np.int32) -> None:
    y[:n] += a * x[:n]


def saxpy(**changed: Any) -> Kernel:
    options: dict[str, Any] = {"block": 256, "threads": lambda a, x, y, n: n}
    return Kernel("saxpy", changed.pop("source", {"gpu": SAXPY, "host": saxpy_on_host}), **options | changed)


def on_one_item(name: str, text: str, **options: Any) -> Kernel:
    return Kernel(name, {"gpu": text}, **{"grid": 1, "block": 1} | options)


@pytest.fixture(autouse=True)
def rig() -> Iterator[None]:
    with restored():
        yield


# The same result everywhere


def test_host_and_device_give_the_same_result() -> None:
    x, y = np.linspace(0, 1, 1000, dtype=np.float32), np.ones(1000, np.float32)
    on_device = cupy.asarray(y)
    kernel = saxpy()
    assert kernel(0.5, cupy.asarray(x), on_device, 900) is None
    kernel(0.5, x, y, 900)
    assert_array_equal(on_device.get(), y)


def test_launches_on_the_current_stream() -> None:
    x, y = cupy.ones(4, "f4"), cupy.zeros(4, "f4")
    kernel = saxpy()
    kernel(1, x, y, 4)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    control("hold compute 0")
    with stream:
        kernel(1, x, y, 4)
    assert not stream.done
    assert cupy.cuda.Stream.null.done
    control("release compute 0")
    stream.synchronize()
    assert_array_equal(y.get(), 2 * np.ones(4))


@pytest.mark.parametrize("device", ["hip:0", pytest.param("hip:1", marks=two_devices), "host"])
def test_one_graph_on_any_device(device: str) -> None:
    g = plait.Graph()
    x, n = g.input("x"), 1000
    y = g.buffer("y", shape=(n,), dtype="float32", fill=1)
    for _ in range(3):
        g.options(device=device).call(saxpy(), 2, x, plait.update(y), n)
    g.output("y", y)
    x = np.arange(n, dtype=np.float32)
    assert_array_equal(plait.run(g, x=x)["y"], 1 + 6 * x)


def test_a_graph_names_what_was_wrong_with_an_item() -> None:
    g = plait.Graph()
    y = g.buffer("y", shape=(4,), dtype="float64", fill=1)
    g.options(device="hip:0").call(saxpy(), 2, g.constant(np.ones(4, "f4")), plait.update(y), 4)
    with pytest.raises(plait.RunFailed) as caught:
        plait.run(g)
    (error,) = caught.value.exceptions
    assert isinstance(error, plait.WorkError)
    assert (error.item, error.device) == ("saxpy#0", "hip:0")
    assert "argument 2 (y) is a C-contiguous float64 array" in str(error.cause)


async def test_captured_with_the_plan() -> None:
    g = plait.Graph()
    x, n = g.input("x", shape=(100,), dtype="float32"), 100
    y = g.buffer("y", shape=(n,), dtype="float32", fill=1)
    with g.defaults(device="hip:0"):
        for _ in range(5):
            g.call(saxpy(), 2, x, plait.update(y), n)
    g.output("y", y)
    async with plait.open_scheduler() as scheduler:
        plan = scheduler.compile(g).capture()
        for value in (1, 2, 3):
            outputs = await scheduler.start(plan, x=np.full(n, value, np.float32))
            assert_array_equal(outputs["y"], np.full(n, 1 + 10 * value, np.float32))
    assert plan.captured


@two_devices
def test_compiled_for_each_device() -> None:
    kernel = saxpy()
    for ordinal in (0, 1):
        with cupy.cuda.Device(ordinal):
            x, y = cupy.arange(5, dtype="f4"), cupy.zeros(5, "f4")
            kernel(3, x, y, 5)
            assert_array_equal(y.get(), 3 * np.arange(5))
    with (
        cupy.cuda.Device(0),
        pytest.raises(
            DeviceError,
            match=r"argument 1 \(x\) is a C-.* on device 1; wanted a C-contiguous float32 array on device 0",
        ),
    ):
        kernel(3, x, y, 5)


# What a source can be


def test_templates() -> None:
    text = "template <typename T, int N> __global__ void scale(T* x, T a) { x[threadIdx.x] *= a * N; }"
    x, z = cupy.arange(4, dtype="f4"), cupy.arange(4, dtype="i8")
    on_one_item("scale<float, 3>", text, block=4)(x, 0.5)
    on_one_item("scale<long long, 2>", text, block=4)(z, 5)
    assert_array_equal(x.get(), 1.5 * np.arange(4))
    assert_array_equal(z.get(), 10 * np.arange(4))


def test_extern_c_is_not_needed() -> None:
    x = cupy.zeros(1, "f4")
    on_one_item("seven", "__global__ void seven(float *x) { *x = 7; }")(x)
    assert x.get() == 7


def test_options_reach_the_compiler() -> None:
    text = 'extern "C" __global__ void fill(int *x) { *x = N; }'
    x = cupy.zeros(1, "i4")
    for number in (4, 5):
        on_one_item("fill", text, options=(f"-DN={number}",))(x)
        assert x.get() == number


def test_dynamic_shared_memory() -> None:
    text = """extern "C" __global__ void turn(int *x, int n) {
        extern __shared__ int seen[];
        seen[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = seen[n - 1 - threadIdx.x];
    }"""
    x = cupy.arange(128, dtype="i4")
    on_one_item("turn", text, block=lambda x, n: n, shared=lambda x, n: 4 * n)(x, 128)
    assert_array_equal(x.get(), np.arange(128)[::-1])


@pytest.mark.parametrize("kind", ["bytes", "path", "text of a path"])
def test_compiled_modules(kind: str, tmp_path: Path) -> None:
    module, _ = cupy.cuda.compiler.compile_using_nvrtc(SAXPY)
    path = tmp_path / "saxpy.hsaco"
    path.write_bytes(module)
    source = {"bytes": module, "path": path, "text of a path": str(path)}[kind]
    kernel = saxpy(source={"hip": source}, signature=("float32", "const float32[]", "float32[]", "int32"))
    y = cupy.ones(5, "f4")
    kernel(2, cupy.arange(5, dtype="f4"), y, 5)
    assert_array_equal(y.get(), 1 + 2 * np.arange(5))


def test_modules_that_cannot_be_loaded(tmp_path: Path) -> None:
    x = cupy.zeros(1, "f4")
    options: dict[str, Any] = {"signature": ("float32[]",), "grid": 1, "block": 1}
    with pytest.raises(DeviceError, match=r"kernel 'k': its module cannot be read: .*none\.hsaco"):
        Kernel("k", {"hip": tmp_path / "none.hsaco"}, **options)(x)
    with pytest.raises(DeviceError, match="loading kernel 'k' on hip:0"):
        Kernel("k", {"hip": b"no module at all, but long enough"}, **options)(x)
    module, _ = cupy.cuda.compiler.compile_using_nvrtc(SAXPY)
    with pytest.raises(DeviceError, match="loading kernel 'saxpi' on hip:0"):
        Kernel("saxpi", {"hip": module}, **options)(x)


def test_cupys_own_kernels() -> None:
    raw = cupy.RawKernel(SAXPY, "saxpy")
    kernel = Kernel("raw", {"hip": raw}, block=32, threads=lambda a, x, y, n: n)
    assert kernel.writes == (2,)
    y = cupy.ones(5, "f4")
    kernel(2, cupy.arange(5, dtype="f4"), y, 5)
    assert_array_equal(y.get(), 1 + 2 * np.arange(5))

    hypot = cupy.ElementwiseKernel("T x, T y", "T z", "z = sqrt(x * x + y * y)", "hypotenuse")
    kernel = Kernel("hypot", {"hip": hypot, "host": np.hypot})
    x = np.arange(4.0)
    assert_allclose(kernel(cupy.asarray(x), cupy.asarray(x)).get(), kernel(x, x))

    checked = Kernel("double", {"hip": lambda x: cupy.add(x, x, out=x)}, signature=("float32[]",))
    x = cupy.ones(3, "f4")
    assert checked(x) is None
    assert_array_equal(x.get(), [2, 2, 2])
    with pytest.raises(DeviceError, match="kernel 'double', argument 0 is a C-contiguous float64 array"):
        checked(x.astype("f8"))


def test_a_kernel_of_the_other_platform_is_refused() -> None:
    with pytest.raises(PlanError, match="no source for 'hip', only for cuda"):
        saxpy(source={"cuda": SAXPY})(1, cupy.ones(1, "f4"), cupy.ones(1, "f4"), 1)
    with pytest.raises(PlanError, match="kernel 'saxpy' on cuda: the installed CuPy is built for hip"):
        saxpy().on("cuda")(1, cupy.ones(1, "f4"), cupy.ones(1, "f4"), 1)


# Compiled once


def test_two_threads_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread is held in the compiler until the second waits for what it makes."""
    loads: list[str] = []
    second_waits = threading.Event()
    first_compiles = threading.Event()
    load = compiling._load

    def held(name: str, *rest: Any) -> Any:
        loads.append(name)
        first_compiles.set()
        assert second_waits.wait(10)
        return load(name, *rest)

    class Seen(Future):  # type: ignore[type-arg]
        def result(self, timeout: float | None = None) -> Any:
            if not self.done():
                second_waits.set()
            return super().result(timeout)

    monkeypatch.setattr(compiling, "_load", held)
    monkeypatch.setattr(compiling, "Future", Seen)
    text = "// compiled once\n" + SAXPY
    x, outputs = cupy.ones(3, "f4"), [cupy.zeros(3, "f4") for _ in range(3)]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(saxpy(source={"hip": text}), 1, x, outputs[0], 3)
        assert first_compiles.wait(10)
        second = pool.submit(saxpy(source={"hip": text}), 2, x, outputs[1], 3)
        first.result()
        second.result()
    saxpy(source={"hip": text})(3, x, outputs[2], 3)
    assert [float(each[0]) for each in outputs] == [1, 2, 3]
    assert loads == ["saxpy"]


def test_compiling_ahead_and_what_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "// compiled ahead\n" + SAXPY
    kernel = saxpy(source={"hip": text})
    control("fail hipModuleLoadData 2 1")
    with pytest.raises(plait.OutOfMemory, match="loading kernel 'saxpy' on hip:0"):
        kernel.on("hip").compile()
    kernel.on("hip").compile()
    monkeypatch.setattr(compiling, "compiled", None)
    y = cupy.ones(1, "f4")
    kernel(1, cupy.ones(1, "f4"), y, 1)
    assert y.get() == 2


# Refused before a launch


def test_a_compile_error_has_the_log_with_the_sources_line_numbers() -> None:
    text = '\nextern "C" __global__ void broken(float *x) {\n  // line 3\n  x[0] = undeclared;\n}\n'
    for name, text_ in (
        ("broken", text),
        ("twice<int>", text.replace('extern "C"', "template <class T>").replace("broken", "twice")),
    ):
        with pytest.raises(DeviceError, match=rf"^kernel '{name}' does not compile for hip:0:\n") as caught:
            on_one_item(name, text_)(cupy.zeros(1, "f4"))
        assert "source:4:" in str(caught.value)
        assert "undeclared" in str(caught.value)
        assert "/tmp" not in str(caught.value)


def test_arguments_are_checked_against_the_current_device() -> None:
    kernel, x, y = saxpy(), cupy.ones(4, "f4"), cupy.ones(4, "f4")
    for args, message in (
        ((1, x, y), "takes 4 arguments, not 3"),
        ((1, x, np.ones(4, "f4"), 4), r"argument 2 \(y\) is a .* in host memory; wanted a .* array on device 0"),
        ((1, x, y.astype("f8"), 4), r"argument 2 \(y\) is a C-contiguous float64 array of shape \(4,\) on device 0"),
        ((1, x[::2], y, 2), r"argument 1 \(x\) is a strided float32 array of shape \(2,\) on device 0"),
        ((1, x, y, 2**31), r"argument 3 \(n\) is the int 2147483648; wanted an int32 scalar"),
        ((1, x, y, 4.0), r"argument 3 \(n\) is the float 4.0"),
        ((x.sum(), x, y, 4), r"argument 0 \(a\) is a C-.* array of shape \(\) on device 0; wanted a float32 scalar"),
        ((1, x, None, 4), r"argument 2 \(y\) is the NoneType None"),
    ):
        with pytest.raises(DeviceError, match="kernel 'saxpy'.* " + message):
            kernel(*args)
    assert_array_equal(y.get(), np.ones(4))


def test_what_the_device_cannot_launch_names_kernel_and_dimensions() -> None:
    args = (1, cupy.ones(4, "f4"), cupy.ones(4, "f4"), 2000)
    with pytest.raises(
        DeviceError, match=r"kernel 'saxpy', \(2, 1, 1\) groups of \(1025, 1, 1\) items, on hip:0: 1025 items per group"
    ):
        saxpy(block=1025)(*args)
    with pytest.raises(DeviceError, match="65537 bytes of dynamic shared memory, at most 65536"):
        saxpy(shared=65537)(*args)
    with pytest.raises(DeviceError, match="2 groups per cluster, at most 1"):
        saxpy(threads=None, grid=2, cluster=2)(*args)


def test_nothing_to_do_launches_nothing() -> None:
    y = cupy.ones(0, "f4")
    saxpy()(1, y, y, 0)


def test_a_failed_launch_names_kernel_dimensions_and_device() -> None:
    kernel, x = saxpy(), cupy.ones(4, "f4")
    kernel(1, x, x, 4)
    control("fail hipModuleLaunchKernel 719 1")
    with pytest.raises(
        DeviceLost, match=r"launching kernel 'saxpy', \(1, 1, 1\) groups of \(256, 1, 1\) items, on hip:0"
    ) as caught:
        kernel(1, x, x, 4)
    assert type(caught.value.__cause__).__name__ == "CUDADriverError"


# The function library


def both(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """A library kernel's results on the device and on the host."""
    on_device = [cupy.asarray(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    return library.lookup(name, "hip")(*on_device, **kwargs), library.lookup(name, "host")(*args, **kwargs)


@pytest.mark.parametrize("reducer", ["add", "multiply", "maximum", "minimum", "and", "or"])
@pytest.mark.parametrize("dtype", ["i4", "f4", "?"])
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (1, False), ((0, 2), True)])
def test_reductions_are_the_hosts(reducer: str, dtype: str, axis: Any, keepdims: bool) -> None:
    found, expected = both(
        "reduce", (np.arange(24) % 5 + 1).reshape(2, 3, 4).astype(dtype), reducer=reducer, axis=axis, keepdims=keepdims
    )
    assert found.dtype == np.asarray(expected).dtype
    assert_array_equal(found.get(), expected)


def test_a_reducer_of_ones_own_is_applied_pair_by_pair() -> None:
    found, expected = both("reduce", np.arange(24.0).reshape(2, 3, 4), reducer=lambda a, b: a - b, axis=(0, 2))
    assert_array_equal(found.get(), expected)
    with pytest.raises(ValueError, match="this reducer has no identity"):
        library.lookup("reduce", "hip")(cupy.ones(0), reducer=lambda a, b: a)


def test_dot_transpose_and_comparators() -> None:
    x = np.arange(12.0).reshape(3, 4)
    for name, args in (("dot", (x, x.T.copy())), ("transpose", (x,)), ("transpose", (x.reshape(3, 2, 2), (1, 0, 2)))):
        found, expected = both(name, *args)
        assert_allclose(found.get(), expected)
    less = library.lookup("less", "hip", kind="comparator")
    assert_array_equal(less(cupy.arange(3), 1).get(), np.arange(3) < 1)


def test_a_graph_calls_them_by_name() -> None:
    g = plait.Graph()
    x = g.input("x")
    g.output("y", g.options(device="hip:0").call("dot", x, x))
    x = np.arange(9.0).reshape(3, 3)
    assert_allclose(plait.run(g, x=x)["y"], x @ x)


def test_an_unknown_comparator_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="the comparator must be 'less' or 'greater', not 'near'"):
        library.lookup("sort", "hip")(cupy.ones(3), comparator="near")
    with pytest.raises(ValueError, match="k must be between 0 and 3"):
        library.lookup("top_k", "hip")(cupy.ones(3), 4)
