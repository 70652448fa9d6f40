"""Kernels on the rig: indices, shared memory and barriers, warps, atomics, templates, constants, half precision."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from rig_kit import launch, stream

SOURCE = r"""
extern "C" __global__ void number(int* out) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int index = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[index] = index;
}
extern "C" __global__ void reverse(int* x, int n) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[256];
    dynamic[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    fixed[threadIdx.x] = dynamic[n - 1 - threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = fixed[threadIdx.x];
}
extern "C" __global__ void blocks_apart(int* out) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = count;
}
extern "C" __global__ void warp_sum(const int* x, int* out) {
    int sum = x[threadIdx.x];
    for (int distance = warpSize / 2; distance > 0; distance /= 2) sum += __shfl_down(sum, distance);
    if (threadIdx.x % warpSize == 0) out[threadIdx.x / warpSize] = sum;
}
extern "C" __global__ void exchange(int* out) {
    int lane = threadIdx.x % warpSize;
    int* mine = out + threadIdx.x * 6;
    mine[0] = __shfl(lane, 3);
    mine[1] = __shfl_up(lane, 1);
    mine[2] = __shfl_xor(lane, 1);
    mine[3] = __popcll(__ballot(lane < 5));
    mine[4] = __any(lane == 31);
    mine[5] = __all(lane < 31);
}
extern "C" __global__ void atomics(int* i, unsigned long long* u, double* d) {
    atomicAdd(&i[0], 1);
    atomicMax(&i[1], (int)threadIdx.x);
    atomicMin(&i[2], (int)threadIdx.x);
    atomicOr(&i[3], 1 << (threadIdx.x % 8));
    int seen = i[4];
    while (true) {
        int found = atomicCAS(&i[4], seen, seen + 2);
        if (found == seen) break;
        seen = found;
    }
    atomicAdd(u, 1ull << 32);
    atomicAdd(d, 0.5);
}
__constant__ int table[4];
extern "C" __global__ void look_up(int* out) { out[threadIdx.x] = table[threadIdx.x]; }
template <class T, int N> __global__ void scale(T* x, T factor) { x[threadIdx.x] *= factor + N; }
"""


@pytest.fixture(scope="module")
def module() -> Any:
    names = ("scale<int, 1>", "scale<float, 2>")
    return cupy.RawModule(code=SOURCE, options=("-std=c++17",), name_expressions=names)


def run(kernel: Any, *arguments: Any, **shape: Any) -> None:
    on = stream()
    launch(kernel, on, *arguments, **shape)
    on.synchronize()


def test_indices(module: Any) -> None:
    out = cupy.empty(2 * 3 * 4 * 5 * 2 * 3, "i4")
    run(module.get_function("number"), out, blocks=(2, 3, 4), threads=(5, 2, 3))
    assert_array_equal(out.get(), np.arange(out.size))


def test_shared_memory_and_barriers(module: Any) -> None:
    x = cupy.asarray(np.arange(256, dtype="i4"))
    run(module.get_function("reverse"), x, 256, threads=(256,), shared=4 * 256)
    assert_array_equal(x.get(), np.arange(256)[::-1])


def test_each_block_has_its_own_shared_memory(module: Any) -> None:
    out = cupy.empty(5, "i4")
    run(module.get_function("blocks_apart"), out, blocks=(5,), threads=(96,))
    assert out.get().tolist() == [96] * 5


def test_warp_sum(module: Any) -> None:
    x, out = np.arange(128, dtype="i4"), cupy.empty(4, "i4")
    run(module.get_function("warp_sum"), cupy.asarray(x), out, threads=(128,))
    assert_array_equal(out.get(), x.reshape(4, 32).sum(axis=1))


def test_warp_exchange_and_votes(module: Any) -> None:
    out, lane = cupy.empty((32, 6), "i4"), np.arange(32)
    run(module.get_function("exchange"), out, threads=(32,))
    columns = [np.full(32, 3), np.maximum(lane - 1, 0), lane ^ 1, np.full(32, 5), np.ones(32), np.zeros(32)]
    assert_array_equal(out.get(), np.stack(columns, axis=1))


def test_atomics(module: Any) -> None:
    i, u, d = (cupy.asarray(a) for a in (np.array([0, 0, 99, 0, 0], "i4"), np.zeros(1, "u8"), np.zeros(1)))
    run(module.get_function("atomics"), i, u, d, blocks=(4,), threads=(64,))
    assert i.get().tolist() == [256, 63, 0, 255, 512]
    assert u.get().tolist() == [256 << 32]
    assert d.get().tolist() == [128.0]


def test_templates(module: Any) -> None:
    x, y = cupy.asarray(np.arange(4, dtype="i4")), cupy.asarray(np.arange(4, dtype="f4"))
    run(module.get_function("scale<int, 1>"), x, 2, threads=(4,))
    run(module.get_function("scale<float, 2>"), y, np.float32(0.5), threads=(4,))
    assert x.get().tolist() == [0, 3, 6, 9]
    assert y.get().tolist() == [0, 2.5, 5, 7.5]


def test_constants(module: Any) -> None:
    out, table = cupy.empty(4, "i4"), cupy.ndarray(4, "i4", module.get_global("table"))
    table.set(np.array([3, 1, 4, 1], "i4"))
    run(module.get_function("look_up"), out, threads=(4,))
    assert out.get().tolist() == [3, 1, 4, 1]


def test_arguments_are_taken_at_the_launch() -> None:
    kernel = cupy.RawKernel(
        'extern "C" __global__ void set(long long* o, char a, double b, short c) { o[0] = a; o[1] = b; o[2] = c; }',
        "set",
    )
    out = cupy.empty(3, "i8")
    run(kernel, out, np.int8(-1), np.float64(1e10), np.int16(-300))
    assert out.get().tolist() == [-1, 10_000_000_000, -300]


def test_half_precision() -> None:
    values = np.array([0, 1, -2.5, 65504, 1e6, 1e-7, 6e-8, 1 / 3, np.inf, np.nan], "f4")
    with np.errstate(over="ignore"):
        expected = values.astype("f2")
    to_half = cupy.RawKernel(
        'extern "C" __global__ void to_half(const float* x, half* y) { y[threadIdx.x] = x[threadIdx.x]; }', "to_half"
    )
    to_float = cupy.RawKernel(
        'extern "C" __global__ void to_float(const half* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }', "to_float"
    )
    halves, back = cupy.empty(values.size, "f2"), cupy.empty(values.size, "f4")
    run(to_half, cupy.asarray(values), halves, threads=(values.size,))
    run(to_float, halves, back, threads=(values.size,))
    assert_array_equal(halves.get(), expected)
    assert_array_equal(back.get(), expected.astype("f4"))


def test_a_source_that_does_not_compile_says_where() -> None:
    bad = cupy.RawKernel('extern "C" __global__ void bad(int* x) {\n  y = 1;\n}', "bad")
    with pytest.raises(cupy.cuda.compiler.CompileException, match=r":2:3: error: .y. was not declared"):
        bad.compile()


def test_launches_that_no_device_takes() -> None:
    kernel = cupy.RawKernel('extern "C" __global__ void nothing(int n) {}', "nothing")
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="InvalidConfiguration"):
        kernel((1,), (1025,), (np.int32(0),))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_products_of_matrices(dtype: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(-9, 9, (3, 4)).astype(dtype), rng.integers(-9, 9, (4, 5)).astype(dtype)
    if dtype.startswith("c"):
        a, b = a * (1 + 2j), b * (3 - 1j)
    a, b = a.astype(dtype), b.astype(dtype)
    assert_array_equal((cupy.asarray(a) @ cupy.asarray(b)).get(), a @ b)
    assert_array_equal((cupy.asarray(a.T).T @ cupy.asarray(b.T).T).get(), a @ b)
