"""Host kernels against references that are too slow to ship, and against NumPy and SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from plait.devices import library
from scipy import signal

conv2d = library.lookup("conv2d", "host")
sort = library.lookup("sort", "host")
top_k = library.lookup("top_k", "host")
reduce = library.lookup("reduce", "host")


def reference(
    image: np.ndarray,
    kernel: np.ndarray,
    strides: list[int],
    paddings: list[tuple[int, int]],
    base: list[int],
    window: list[int],
    groups: int,
) -> np.ndarray:
    """Channels last, one output value at a time, straight from the definition: a pixel that is no pixel is 0."""
    batch, *spatial, channels = image.shape
    *taps, inputs, features = kernel.shape
    room = [
        max(0, max(0, (n - 1) * b + 1) + low + high) for n, b, (low, high) in zip(spatial, base, paddings, strict=True)
    ]
    reach = [(k - 1) * w + 1 for k, w in zip(taps, window, strict=True)]
    size = [max(0, (r - e) // s + 1) for r, e, s in zip(room, reach, strides, strict=True)]
    result = np.zeros((batch, *size, features))
    for n, *at, feature in np.ndindex(*result.shape):
        first = feature // (features // groups) * inputs
        for tap in np.ndindex(*taps):
            places = [
                a * s + t * w - low for a, s, t, w, (low, _) in zip(at, strides, tap, window, paddings, strict=True)
            ]
            if any(p % b or not 0 <= p // b < n_ for p, b, n_ in zip(places, base, spatial, strict=True)):
                continue
            pixel = image[(n, *(p // b for p, b in zip(places, base, strict=True)))]
            result[(n, *at, feature)] += pixel[first : first + inputs] @ kernel[(*tap, slice(None), feature)]
    assert channels == groups * inputs
    return result


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    dimensions = draw(st.integers(1, 3))
    longest = {1: 9, 2: 6, 3: 4}[dimensions]

    def each(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=dimensions, max_size=dimensions))

    groups, inputs, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(["float16", "float32", "float64"]))
    image = random.standard_normal((draw(st.integers(0, 2)), *each(1, longest), groups * inputs)).astype(dtype)
    kernel = random.standard_normal((*each(1, 3), inputs, groups * per_group)).astype(dtype)
    return {
        "image": image,
        "kernel": kernel,
        "strides": each(1, 3),
        "paddings": list(zip(each(-2, 3), each(-2, 3), strict=True)),
        "base": each(1, 3),
        "window": each(1, 2),
        "groups": groups,
    }


@given(convolutions(), st.booleans())
def test_convolutions_are_what_their_definition_says(case: dict[str, Any], channels_first: bool) -> None:
    image, kernel = case["image"], case["kernel"]
    dimensions = image.ndim - 2
    expected = reference(**{**case, "image": image.astype(float), "kernel": kernel.astype(float)})
    layout = "channels-last"
    if channels_first:
        layout = "channels-first"
        image, kernel = np.moveaxis(image, -1, 1), np.moveaxis(kernel, (-1, -2), (0, 1))
        expected = np.moveaxis(expected, -1, 1)
    found = library.lookup(f"conv{dimensions}d", "host")(
        image,
        kernel,
        stride=case["strides"],
        padding=case["paddings"],
        base_dilation=case["base"],
        window_dilation=case["window"],
        groups=case["groups"],
        layout=layout,
    )
    assert found.dtype == image.dtype
    assert found.shape == expected.shape
    exact = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-12}[str(image.dtype)]
    assert_allclose(found, expected, rtol=exact, atol=exact)


def test_ones_with_padding_count_the_pixels_under_the_kernel() -> None:
    counts = conv2d(np.ones((5, 5)), np.ones((3, 3)), padding=1)
    assert (counts[0, 0], counts[0, 2], counts[2, 2]) == (4, 6, 9)


@pytest.mark.parametrize(("mode", "padding"), [("valid", 0), ("same", 1), ("full", 2)])
def test_a_plain_image_agrees_with_scipy_and_the_kernel_is_not_flipped(mode: str, padding: int) -> None:
    random = np.random.default_rng(7)
    image, kernel = random.standard_normal((20, 17)), random.standard_normal((3, 3))
    assert_allclose(conv2d(image, kernel, padding=padding), signal.correlate2d(image, kernel, mode))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"groups": 2}, ValueError, "must divide the image's 3 channels"),
        ({"groups": 3}, ValueError, "kernel has 3 channels, and the image 3 in 3 groups"),
        ({"stride": 0}, ValueError, "stride must be a positive integer"),
        ({"stride": (1, 2, 3)}, ValueError, "or 2 of them"),
        ({"padding": [1]}, ValueError, "one entry for each of 2 axes"),
        ({"layout": "NHWC"}, ValueError, "layout must be 'channels-last'"),
        ({"kernel": np.ones((3, 3))}, ValueError, "kernel must have 4 axes"),
        ({"image": np.ones((1, 5, 5, 3), int)}, TypeError, "image must be an array of float16.*not int"),
    ],
)
def test_a_convolution_says_which_argument_does_not_fit(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        conv2d(**{"image": np.ones((1, 5, 5, 3)), "kernel": np.ones((2, 2, 3, 3)), **arguments})


def test_sort_takes_a_comparator_by_name_or_as_a_function_and_is_stable() -> None:
    values = np.random.default_rng(1).integers(0, 5, (4, 9))
    assert_array_equal(sort(values), np.sort(values))
    assert_array_equal(sort(values, axis=0, comparator="greater"), -np.sort(-values, axis=0))
    tens = np.array([31, 12, 11, 32, 10])
    assert_array_equal(sort(tens, comparator=lambda a, b: a // 10 < b // 10), [12, 11, 10, 31, 32])


@given(st.lists(st.integers(-3, 3), max_size=12), st.data())
def test_top_k_is_the_head_of_a_stable_descending_sort(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)))
    largest, indices = top_k(np.array(values, int), k)
    expected = sorted(range(len(values)), key=lambda at: -values[at])[:k]
    assert indices.tolist() == expected
    assert largest.tolist() == [values[at] for at in expected]


def test_top_k_of_unsigned_numbers_along_another_axis() -> None:
    values = np.array([[0, 255], [7, 0], [9, 9]], np.uint8)
    largest, _ = top_k(values, 2, axis=0)
    assert_array_equal(largest, [[9, 255], [7, 9]])
    with pytest.raises(ValueError, match="k must be between 0 and 2"):
        top_k(values, 3)


def larger_of(a: Any, b: Any) -> Any:
    return np.where(a > b, a, b)


@pytest.mark.parametrize(
    ("axis", "keepdims", "reducer"),
    [*itertools.product([None, 0, -1, (0, 2)], [False, True], ["maximum", np.maximum, larger_of])],
)
def test_reduce_takes_a_name_a_ufunc_or_a_function(axis: Any, keepdims: bool, reducer: Any) -> None:
    values = np.random.default_rng(2).standard_normal((3, 4, 5))
    found = reduce(values, reducer=reducer, axis=axis, keepdims=keepdims)
    assert_array_equal(found, values.max(axis=axis, keepdims=keepdims))


def test_the_thin_ones_are_numpys() -> None:
    values = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)
    for name, function in (("dot", np.dot), ("fft", np.fft.fft), ("transpose", np.transpose)):
        arguments = (values, values) if name == "dot" else (values,)
        found = library.lookup(name, "host")(*arguments)
        assert_array_equal(found, function(*arguments))
    assert_allclose(library.lookup("irfft", "host")(library.lookup("rfft", "host")(values)), values, atol=1e-6)
