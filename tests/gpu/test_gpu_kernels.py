"""Kernels on a real GPU: what the rig cannot show, since it runs on a CPU and lacks the vendors' libraries."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plait import DeviceError, Kernel
from plait.devices import library
from plait.devices.gpu import driver

pytestmark = pytest.mark.gpu
cupy: Any = pytest.importorskip("cupy", reason="needs CuPy", exc_type=ImportError)
if not cupy.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL("libamdhip64.so.7").hipcpu_control  # noqa: B018
    pytest.skip("the rig is no GPU", allow_module_level=True)

PLATFORM = driver.platform_name()
cuda = pytest.mark.skipif(PLATFORM != "cuda", reason="needs CUDA")


def kernel(name: str, text: str, **options: Any) -> Kernel:
    return Kernel(name, {"gpu": text}, **{"grid": 1, "block": 1} | options)


def test_a_functions_launch_bounds_are_a_limit() -> None:
    text = 'extern "C" __global__ void __launch_bounds__(128) bounded(int *x) { x[threadIdx.x] += 1; }'
    x = cupy.zeros(256, "i4")
    kernel("bounded", text, block=128)(x)
    with pytest.raises(DeviceError, match=r"kernel 'bounded', .* 256 items per group, at most 128"):
        kernel("bounded", text, block=256)(x)
    assert int(x.sum()) == 128


@cuda
def test_shared_memory_beyond_what_any_function_gets() -> None:
    text = """extern "C" __global__ void far(int *x, int n) {
        extern __shared__ int seen[];
        seen[n - 1] = 7;
        *x = seen[n - 1];
    }"""
    most = cupy.cuda.runtime.getDeviceProperties(0)["sharedMemPerBlockOptin"]
    x = cupy.zeros(1, "i4")
    kernel("far", text, shared=most)(x, most // 4)
    assert x.get() == 7
    with pytest.raises(DeviceError, match=f"{most + 1} bytes of dynamic shared memory, at most {most}"):
        kernel("far", text, shared=most + 1)(x, 1)


@cuda
@pytest.mark.skipif(int(cupy.cuda.Device(0).compute_capability) < 90, reason="needs clusters")
def test_clusters() -> None:
    text = """#include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(2, 1, 1) ranks(unsigned *x) {
        x[blockIdx.x] = cooperative_groups::this_cluster().block_rank();
    }"""
    x = cupy.zeros(4, "u4")
    kernel("ranks", text, grid=4, cluster=2)(x)
    assert_array_equal(x.get(), [0, 1, 0, 1])
    with pytest.raises(DeviceError, match="not a multiple of the cluster"):
        kernel("ranks", text, grid=3, cluster=2)(x)


@cuda
@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_compiled_modules(kind: str) -> None:
    text = 'extern "C" __global__ void seven(float *x) { *x = 7; }'
    if kind == "cubin":
        module, _ = cupy.cuda.compiler.compile_using_nvrtc(text)
    else:
        program = cupy.cuda.compiler._NVRTCProgram(text, method="ptx")
        module, _ = program.compile()
    x = cupy.zeros(1, "f4")
    Kernel("seven", {"cuda": module}, signature=("float32[]",), grid=1, block=1)(x)
    assert x.get() == 7


def test_a_compile_error_has_the_sources_line_numbers() -> None:
    with pytest.raises(DeviceError, match=r"does not compile for .*\n.*source[(:]3[):]"):
        kernel("broken", '\nextern "C" __global__ void broken(float *x) {\n  x[0] = undeclared;\n}\n')(
            cupy.zeros(1, "f4")
        )


def both(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    on_device = [cupy.asarray(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    return library.lookup(name, PLATFORM)(*on_device, **kwargs), library.lookup(name, "host")(*args, **kwargs)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_and_top_k_are_the_hosts(axis: int) -> None:
    x = np.random.default_rng(3).integers(0, 9, (7, 8)).astype(np.float32)
    x[2, 3] = np.nan
    for comparator in ("less", "greater"):
        given = x if comparator == "less" else np.nan_to_num(x)
        found, expected = both("sort", given, axis=axis, comparator=comparator)
        assert_array_equal(found.get(), expected)
    for found, expected in zip(*both("top_k", x, 3, axis=axis), strict=True):
        assert_array_equal(found.get(), expected)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_transforms_are_the_hosts(name: str) -> None:
    found, expected = both(name, np.random.default_rng(4).random((3, 16)))
    assert_allclose(found.get(), expected, atol=1e-12)
