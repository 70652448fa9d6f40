"""Kernels without a GPU: how they are described, what they refuse, what their host source does."""

from __future__ import annotations

import inspect
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import plait
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from plait import DeviceError, Kernel, PlanError
from plait.devices.dimensions import Dimensions, Limits, covering, triple
from plait.devices.gpu import compile as compiling
from plait.devices.signature import from_source

SAXPY = """
extern "C" __global__ void __launch_bounds__(256)
saxpy(float a, const float* __restrict__ x, float *y, unsigned int n /* items, (not groups) */) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


def saxpy_on_host(a: np.float32, x: np.ndarray, y: np.ndarray, n: np.uint32) -> np.ndarray:
    y[:n] += a * x[:n]
    return y


def saxpy(**changed: Any) -> Kernel:
    options: dict[str, Any] = {"block": 256, "threads": lambda a, x, y, n: n}
    return Kernel("saxpy", changed.pop("source", {"gpu": SAXPY, "host": saxpy_on_host}), **options | changed)


def floats(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


# Dimensions


def test_counts_fill_up_to_three() -> None:
    assert triple(7, "grid") == triple([7], "grid") == triple((7, 1, 1), "grid") == (7, 1, 1)
    assert triple(np.int64(7), "grid") == (7, 1, 1)
    assert triple((2, 3), "grid") == (2, 3, 1)
    assert triple(0, "grid", least=0) == (0, 1, 1)


@pytest.mark.parametrize("value", [(), (1, 2, 3, 4), 0, (1, -1), 1.5, "4", None, (1, None)])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(DeviceError, match=r"^grid must be a count of at least 1, or up to three of them, not"):
        triple(value, "grid")


def test_products_and_equality_over_clusters_groups_and_items() -> None:
    dimensions = Dimensions((1, 2, 1), (32, 1, 1))
    assert (dimensions.group_count, dimensions.items_per_group, dimensions.item_count) == (2, 32, 64)
    assert dimensions == Dimensions((1, 2, 1), (32, 1, 1), (1, 1, 1))
    for other in (
        Dimensions((2, 1, 1), (32, 1, 1)),
        Dimensions((1, 2, 1), (1, 32, 1)),
        Dimensions((1, 2, 1), (32, 1, 1), (1, 2, 1)),
    ):
        assert dimensions != other
    assert len({dimensions, Dimensions((1, 2, 1), (32, 1, 1))}) == 1


@given(st.tuples(*[st.integers(0, 10**6)] * 3), st.tuples(*[st.integers(1, 1024)] * 3))
def test_covering_is_enough_and_no_group_too_many(total: Any, items: Any) -> None:
    for groups, each, wanted in zip(covering(total, items), items, total, strict=True):
        assert groups * each >= wanted
        assert (groups - 1) * each < wanted or groups == wanted == 0


LIMITS = Limits(
    items_per_group=1024, items=(1024, 1024, 64), groups=(1000, 100, 100), groups_per_cluster=8, shared=49152
)


@pytest.mark.parametrize(
    ("dimensions", "shared", "message"),
    [
        (((1, 1, 1), (1025, 1, 1)), 0, "1025 items per group, at most 1024"),
        (((1, 1, 1), (33, 32, 1)), 0, "1056 items per group, at most 1024"),
        (((1, 1, 1), (1, 1, 65)), 0, "65 items per group along z, at most 64"),
        (((1001, 1, 1), (1, 1, 1)), 0, "1001 groups along x, at most 1000"),
        (((1, 101, 1), (1, 1, 1)), 0, "101 groups along y, at most 100"),
        (((1, 1, 1), (1, 1, 1)), 49153, "49153 bytes of dynamic shared memory, at most 49152"),
        (((1, 1, 1), (1, 1, 1)), -1, "-1 bytes of dynamic shared memory"),
        (((9, 1, 1), (1, 1, 1), (9, 1, 1)), 0, "9 groups per cluster, at most 8"),
        (((3, 1, 1), (1, 1, 1), (2, 1, 1)), 0, "not a multiple of the cluster"),
    ],
)
def test_a_launch_over_a_limit_names_the_kernel_the_dimensions_and_the_limit(
    dimensions: Any, shared: int, message: str
) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        LIMITS.check(Dimensions(*dimensions), shared, kernel="saxpy", device="cuda:0")
    assert str(caught.value).startswith(f"kernel 'saxpy', {dimensions[0]} groups of {dimensions[1]} items")
    assert "on cuda:0" in str(caught.value)


def test_a_launch_within_the_limits_passes() -> None:
    LIMITS.check(Dimensions((1000, 100, 100), (1024, 1, 1)), 49152, kernel="k", device="cuda:0")
    LIMITS.check(Dimensions((4, 2, 1), (32, 1, 1), (2, 2, 1)), 0, kernel="k", device="cuda:0")


def test_dimensions_follow_the_arguments() -> None:
    assert saxpy().dimensions(1, None, None, 1000) == Dimensions((4, 1, 1), (256, 1, 1))
    assert saxpy().dimensions(1, None, None, 0).item_count == 0
    kernel = saxpy(threads=None, grid=lambda *_: (2, 3), block=lambda a, x, y, n: n // 10, cluster=2)
    assert kernel.dimensions(1, None, None, 320) == Dimensions((2, 3, 1), (32, 1, 1), (2, 1, 1))
    with pytest.raises(DeviceError, match=r"kernel 'saxpy': block must be a count of at least 1.*not 0"):
        kernel.dimensions(1, None, None, 0)


# Signatures


def types_of(parameters: str, name: str = "f", template: str = "") -> str:
    read = from_source(f"{template} __global__ void f({parameters}) {{}}", name)
    if isinstance(read, str):
        return read
    return ", ".join(
        f"{'const ' * (each.array and not each.writes)}{each.dtype}{'[]' * each.array} {each.name}".strip()
        for each in read
    )


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", ""),
        ("void", ""),
        ("float *x, const double* y, float const *z", "float32[] x, const float64[] y, const float32[] z"),
        ("const float* const __restrict__ x, int*const y", "const float32[] x, int32[] y"),
        ("int, unsigned, float*", "int32, uint32, float32[]"),
        ("char a, signed char b, unsigned char c, short d", "int8 a, int8 b, uint8 c, int16 d"),
        ("unsigned short int a, long long b, unsigned long long c", "uint16 a, int64 b, uint64 c"),
        ("long long unsigned int a, signed b, const unsigned int c", "uint64 a, int32 b, uint32 c"),
        ("bool a, __half* b, size_t c, std::uint8_t d, int64_t e", "bool a, float16[] b, uint64 c, uint8 d, int64 e"),
        ("complex<float>* a, thrust::complex< double > b", "complex64[] a, complex128 b"),
        ("const float x[], int n[4]", "const float32[] x, int32[] n"),
        ("float /* in */ *x, // the input,\n int n", "float32[] x, int32 n"),
    ],
)
def test_parameter_lists_are_read(parameters: str, expected: str) -> None:
    assert types_of(parameters) == expected


@pytest.mark.parametrize(
    "parameter", ["float4 *p", "float **x", "float &x", "T x", "void *p", "Args... args", "f<int>"]
)
def test_what_is_not_simple_says_which_parameter(parameter: str) -> None:
    assert types_of(f"int n, {parameter}") == (
        f"its parameter {parameter!r} is neither of a basic type nor a pointer to one"
    )


def test_a_templates_type_parameters_are_filled_in() -> None:
    template = "template <typename T, int N, class U>"
    assert types_of("T *x, const U *y, U n", "f<float, 4, unsigned int>", template) == (
        "float32[] x, const uint32[] y, uint32 n"
    )
    assert "'T *x'" in types_of("T *x", "f<float4>", "template <class T>")


def test_the_right_function_is_found_among_several() -> None:
    text = (
        "// __global__ void f(int wrong) {}\n__device__ float f(float x) { return x; }\n"
        "__global__ void ff(int x) { }\nnamespace n { __global__ void f(double y) { } }"
    )
    read = from_source(text, "n::f")
    assert [each.name for each in read] == ["y"]
    assert from_source(text, "g") == "it has no __global__ function called 'g'"


def test_declared_signatures_say_arrays_constness_and_names() -> None:
    kernel = Kernel("k", {"host": print}, signature=("float32[]", "const int8 [] codes", "int32 n", "<f8"))
    assert [(str(each.dtype), each.array, each.writes, each.name) for each in kernel.arguments or ()] == [
        ("float32", True, True, ""),
        ("int8", True, False, "codes"),
        ("int32", False, False, "n"),
        ("float64", False, False, ""),
    ]
    assert kernel.writes == (0,)
    assert Kernel("k", {"host": print}, signature=()).arguments == ()


# Descriptions


def test_a_kernel_is_described_by_name_sources_and_writes() -> None:
    kernel = saxpy()
    assert kernel.__name__ == "saxpy"
    assert repr(kernel) == "<Kernel 'saxpy' for cuda, hip, host>"
    assert kernel.writes == (2,)
    with pytest.raises(AttributeError):
        kernel.name = "other"  # type: ignore[misc]
    assert plait.devices.Kernel is Kernel


async def later() -> None: ...


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": {}}, "source is a dict from platforms to sources"),
        ({"source": SAXPY}, "source is a dict from platforms to sources"),
        ({"source": {"gpu": SAXPY, "cuda": SAXPY}}, "has two sources for cuda"),
        ({"source": {"host": SAXPY}}, "its source for host must be a callable"),
        ({"source": {("cuda", "hip"): 3}}, "source for cuda must be C.* text, a compiled module or a callable, not 3"),
        ({"source": {"host": later}}, "its source for host must be a callable, not <function later"),
        ({"block": None}, "launched on cuda: give block, and either grid or threads"),
        ({"threads": None}, "either grid or threads"),
        ({"grid": 1}, "either grid or threads"),
        ({"options": "-DN=1"}, "options are a tuple of texts"),
        ({"signature": "float32"}, "signature is a sequence of texts"),
        ({"signature": ["float33[]"]}, r"signature\[0\] is 'float33\[\]'; it must be like"),
        ({"signature": ["float32", "float32**"]}, r"signature\[1\] is 'float32\*\*'"),
        ({"signature": ["O"]}, r"signature\[0\]: a scalar cannot be object"),
        ({"signature": ["float32"]}, r"cuda source takes \(float32, .*uint32\), its signature \(float32\)"),
        (
            {"source": {"cuda": SAXPY, "hip": SAXPY.replace("unsigned int n", "int n")}},
            r"hip source takes \(float32, float32\[\], float32\[\], int32\), its cuda source \(",
        ),
        ({"source": {"cuda": SAXPY.replace("float *y", "float4 *y")}}, "is needed for its cuda source: its parameter"),
        ({"source": {"cuda": b"\x7fELF"}}, "signature=.* is needed, since a compiled module does not say it"),
        ({"source": {"hip": pathlib.Path("saxpy.hsaco")}}, "a compiled module does not say it"),
        ({"source": {"cuda": "saxpy.ptx"}}, "a compiled module does not say it"),
    ],
)
def test_a_description_that_does_not_hold_together_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        saxpy(**changed)


def test_constant_counts_are_checked_when_described() -> None:
    with pytest.raises(DeviceError, match="kernel 'saxpy': block must be a count of at least 1"):
        saxpy(block=0)
    with pytest.raises(DeviceError, match="kernel 'saxpy': cluster must be"):
        saxpy(cluster=(1, 1, 1, 1))
    with pytest.raises(PlanError, match="a kernel needs a non-empty name"):
        Kernel("", {"host": print})


def test_a_compiled_module_needs_only_a_signature() -> None:
    for source in (b"\x7fELF", pathlib.Path("k.cubin"), "k.ptx"):
        assert Kernel("k", {"cuda": source}, signature=("float32[]",), grid=1, block=1).on("cuda") is not None


def test_a_missing_platform_is_named_beside_those_there_are() -> None:
    with pytest.raises(PlanError, match="kernel 'saxpy' has no source for 'sim', only for cuda, hip, host"):
        saxpy().on("sim")
    with pytest.raises(PlanError, match="kernel 'saxpy' has no source for 'host', only for cuda, hip"):
        saxpy(source={"gpu": SAXPY})(1, floats(3), floats(3), 3)


def test_describing_and_calling_on_the_host_imports_no_cupy() -> None:
    lines = [*inspect.getsource(saxpy_on_host).splitlines(), f"SAXPY = {SAXPY!r}"]
    script = "\n".join(
        [
            "import sys, numpy as np, plait",
            "from plait.devices import library",
            *lines,
            "k = plait.Kernel('saxpy', {'gpu': SAXPY, 'host': saxpy_on_host}, block=1, grid=1)",
            "k(1, np.ones(3, 'f4'), np.ones(3, 'f4'), 3); k.on('cuda')",
            "library.lookup('dot', 'cuda')",
            "assert 'cupy' not in sys.modules",
        ]
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# On the host


def test_on_the_host_arrays_change_in_place_and_nothing_comes_back() -> None:
    y = np.ones(4, np.float32)
    assert saxpy()(2, floats(4), y, 4) is None
    assert_array_equal(y, [1, 3, 5, 7])


def test_scalars_arrive_cast_as_the_signature_says() -> None:
    seen: list[Any] = []
    kernel = Kernel("k", {"host": lambda *args: seen.extend(args)}, signature=("int8", "float32", "complex64", "bool"))
    kernel(np.array(3), 2, 1.5, np.True_)
    assert [type(each) for each in seen] == [np.int8, np.float32, np.complex64, np.bool_]
    seen.clear()
    kernel(True, float("nan"), complex("inf"), False)
    assert np.isnan(seen[1]) and np.isinf(seen[2])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int8", 128),
        ("int8", -129),
        ("uint64", -1),
        ("int32", 1.0),
        ("int32", "1"),
        ("bool", 1),
        ("float32", 1e39),
        ("float16", 65536),
        ("float64", 10**400),
        ("float64", 1j),
        ("float32", None),
        ("complex64", 1e39j),
        ("float32", np.zeros(1)),
    ],
)
def test_a_scalar_that_does_not_fit_is_refused(dtype: str, value: Any) -> None:
    with pytest.raises(DeviceError, match=rf"kernel 'k', argument 0 \(n\) is .*; wanted an? {dtype} scalar"):
        Kernel("k", {"host": print}, signature=(f"{dtype} n",))(value)


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (
            2,
            np.ones(4),
            r"argument 2 \(y\) is a C-contiguous float64 array of shape \(4,\) in host memory; wanted a C-",
        ),
        (1, np.ones(8, np.float32)[::2], r"argument 1 \(x\) is a strided float32 array of shape \(4,\)"),
        (1, [1.0], r"argument 1 \(x\) is the list \[1.0\]; wanted a C-contiguous float32 array in host memory"),
        (1, np.float32(1), r"argument 1 \(x\) is the float32"),
        (1, None, r"argument 1 \(x\) is the NoneType None"),
    ],
)
def test_an_array_that_does_not_fit_is_refused_before_anything_runs(index: int, value: Any, message: str) -> None:
    args = [2, floats(4), np.ones(4, np.float32), 4]
    args[index] = value
    with pytest.raises(DeviceError, match="kernel 'saxpy', " + message):
        saxpy()(*args)


def test_a_wrong_count_says_what_is_taken() -> None:
    with pytest.raises(DeviceError, match="takes 4 arguments, not 3: a: a float32 scalar, x: a C-contiguous float32"):
        saxpy()(2, floats(4), floats(4))


def test_an_array_that_may_change_must_not_be_read_only() -> None:
    y = floats(4)
    y.flags.writeable = False
    with pytest.raises(DeviceError, match="kernel 'saxpy' may change its argument 2, which is read-only"):
        saxpy()(2, floats(4), y, 4)


def test_compiling_that_is_interrupted_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "_load", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiling.compiled("k", "text", (), 0)
    monkeypatch.setattr(compiling, "_load", lambda *args: args)
    assert compiling.compiled("k", "text", (), 0) == compiling.compiled("k", "text", (), 0) == ("k", "text", (), 0)
    monkeypatch.setattr(compiling, "_load", lambda *args: None)
    assert compiling.compiled("k", "text", (), 0) is not None
    for key in [key for key in compiling._TABLE if key[1] == "k"]:
        del compiling._TABLE[key]


def test_without_a_signature_a_kernel_is_its_callables() -> None:
    kernel = Kernel("double", {"host": lambda x: 2 * x})
    assert kernel.arguments is None
    assert kernel([1, 2]) == [1, 2, 1, 2]


# In graphs


def test_a_graph_updates_in_place_with_the_host_source() -> None:
    g = plait.Graph()
    x, n = g.input("x"), 1000
    y = g.buffer("y", shape=(n,), dtype="float32", fill=1)
    for _ in range(3):
        g.call(saxpy(), 2, x, plait.update(y), n)
    g.output("y", y)
    assert_array_equal(plait.run(g, x=floats(n))["y"], 1 + 6 * floats(n))


def test_a_kernel_without_a_host_source_fails_before_anything_runs_and_names_item_and_site() -> None:
    ran: list[int] = []
    g = plait.Graph()
    g.call(ran.append, 1)
    y = g.buffer("y", shape=(4,), dtype="float32", fill=1)
    g.call(saxpy(source={"gpu": SAXPY}), 2, g.constant(floats(4)), plait.update(y), 4)
    with pytest.raises(PlanError, match=r"item 'saxpy#1' \(recorded at .*test_kernel.py.*no source for 'host', only"):
        plait.run(g)
    assert not ran


def test_a_kernel_can_be_given_options_as_work() -> None:
    work = plait.work(saxpy(), priority=3)
    assert work.options == {"priority": 3}
    g = plait.Graph()
    y = g.buffer("y", shape=(4,), dtype="float32", fill=1)
    work(2, g.constant(floats(4)), plait.update(y), 4)
    g.output("y", y)
    assert_array_equal(plait.run(g)["y"], [1, 3, 5, 7])
