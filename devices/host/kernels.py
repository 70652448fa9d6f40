"""Host kernels by name: convolutions, and thin covers of NumPy's dot, transpose, sort, top-k, reduce and FFT."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from plait.devices.library import LIBRARY, Kind

Array = npt.NDArray[Any]
PerDimension = int | Sequence[int]
Padding = int | Sequence[int | tuple[int, int]]


def convolve(
    image: Array,
    kernel: Array,
    *,
    dimensions: int,
    stride: PerDimension = 1,
    padding: Padding = 0,
    base_dilation: PerDimension = 1,
    window_dilation: PerDimension = 1,
    groups: int = 1,
    layout: str = "channels-last",
) -> Array:
    """Convolve over ``dimensions`` spatial axes; the kernel is not flipped, as usual in this trade.

    Channels last: ``image`` is (batch, *spatial, channels), ``kernel`` (*spatial, channels / groups, features), the
    result (batch, *spatial, features). Channels first: (batch, channels, *spatial), (features, channels / groups,
    *spatial) and (batch, features, *spatial). An image without batch and channels goes with a kernel without
    channels and features, and so does the result.

    Integers count for every spatial axis, sequences have one entry for each. ``padding`` adds zeros before and after
    (``(low, high)`` or one number for both; negative cuts off) after ``base_dilation`` has put zeros between pixels;
    ``window_dilation`` spreads the kernel's taps. Half precision is summed in single. ValueError and TypeError say
    which argument does not fit.
    """
    dtype = _float_dtype(image, kernel)
    plain = image.ndim == kernel.ndim == dimensions
    image, kernel = _channels_last(image, kernel, dimensions, layout, plain)
    sums = np.dtype(np.float32) if dtype == np.float16 else dtype
    padded = _padded(
        image.astype(sums, copy=False),
        _per_dimension("base_dilation", base_dilation, dimensions),
        _paddings(padding, dimensions),
    )
    kernel = kernel.astype(sums, copy=False)
    strides = _per_dimension("stride", stride, dimensions)
    spread = _per_dimension("window_dilation", window_dilation, dimensions)
    taps = kernel.shape[:dimensions]
    size = [
        max(0, (length - (count - 1) * gap - 1) // step + 1) if count else 0
        for length, count, gap, step in zip(padded.shape[1:-1], taps, spread, strides, strict=True)
    ]
    weights = _grouped(kernel, padded.shape[-1], groups)
    result = np.zeros((len(padded), *size, kernel.shape[-1]), sums)
    for tap in itertools.product(*map(range, taps)) if all(size) else ():
        window = tuple(
            slice(at * gap, at * gap + (count - 1) * step + 1, step)
            for at, gap, count, step in zip(tap, spread, size, strides, strict=True)
        )
        _accumulate(result, padded[(slice(None), *window)], weights[tap])
    result = result.astype(dtype, copy=False)
    if plain:
        return result[0, ..., 0]
    return result if layout == "channels-last" else np.ascontiguousarray(np.moveaxis(result, -1, 1))


def _accumulate(result: Array, window: Array, weights: Array) -> None:
    """Add what one tap of the kernel gives; ``weights`` is (groups, channels, features) of that tap."""
    groups, channels, features = weights.shape
    if channels == 1:  # a product of matrices with one row costs more than their outer product
        parts = result.reshape(*result.shape[:-1], groups, features)
        parts += window[..., None] * weights[:, 0]
        return
    for group in range(groups):
        part = window[..., group * channels : (group + 1) * channels]
        result[..., group * features : (group + 1) * features] += part @ weights[group]


def _float_dtype(image: Array, kernel: Array) -> np.dtype[Any]:
    for name, array in (("image", image), ("kernel", kernel)):
        if not isinstance(array, np.ndarray) or array.dtype not in (np.float16, np.float32, np.float64):
            found = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"{name} must be an array of float16, float32 or float64, not {found}")
    return np.result_type(image, kernel)


def _channels_last(image: Array, kernel: Array, dimensions: int, layout: str, plain: bool) -> tuple[Array, Array]:
    if layout not in ("channels-last", "channels-first"):
        raise ValueError(f"layout must be 'channels-last' or 'channels-first', not {layout!r}")
    if plain:
        return image[None, ..., None], kernel[..., None, None]
    for name, array in (("image", image), ("kernel", kernel)):
        if array.ndim != dimensions + 2:
            raise ValueError(f"{name} must have {dimensions + 2} axes (or {dimensions}, plain), not {array.ndim}")
    if layout == "channels-first":
        return np.moveaxis(image, 1, -1), np.moveaxis(kernel, (1, 0), (-2, -1))
    return image, kernel


def _per_dimension(name: str, value: PerDimension, dimensions: int) -> list[int]:
    values = [value] * dimensions if isinstance(value, int | np.integer) else [operator.index(each) for each in value]
    if len(values) != dimensions or min(values) < 1:
        raise ValueError(f"{name} must be a positive integer, or {dimensions} of them, not {value!r}")
    return values


def _paddings(padding: Padding, dimensions: int) -> list[tuple[int, int]]:
    values = [padding] * dimensions if isinstance(padding, int | np.integer) else list(padding)
    if len(values) != dimensions:
        raise ValueError(f"padding must be an integer, or one entry for each of {dimensions} axes, not {padding!r}")
    pairs = []
    for value in values:
        low, high = (value, value) if isinstance(value, int | np.integer) else value
        pairs.append((operator.index(low), operator.index(high)))
    return pairs


def _padded(image: Array, dilations: list[int], paddings: list[tuple[int, int]]) -> Array:
    """The image, channels last, with zeros put in and around."""
    spatial = image.shape[1:-1]
    if all(each == 1 for each in dilations) and not any(map(any, paddings)):
        return image
    spread = [max(0, (length - 1) * gap + 1) for length, gap in zip(spatial, dilations, strict=True)]
    shape = [max(0, length + low + high) for length, (low, high) in zip(spread, paddings, strict=True)]
    result = np.zeros((len(image), *shape, image.shape[-1]), image.dtype)
    source, target = [slice(None)], [slice(None)]
    for length, gap, (low, _), room in zip(spatial, dilations, paddings, shape, strict=True):
        first = max(0, -(low // gap))  # the first pixel that is not cut off
        start = low + first * gap
        count = max(0, min(length - first, (room - start + gap - 1) // gap))
        source.append(slice(first, first + count))
        target.append(slice(start, start + (count - 1) * gap + 1, gap) if count else slice(0, 0))
    result[tuple(target)] = image[tuple(source)]
    return result


def _grouped(kernel: Array, channels: int, groups: int) -> Array:
    """The kernel as (*spatial, groups, channels per group, features per group)."""
    *taps, inputs, features = kernel.shape
    if not isinstance(groups, int) or groups < 1 or channels % groups or features % groups:
        raise ValueError(f"groups={groups!r} must divide the image's {channels} channels and {features} features")
    if inputs != channels // groups:
        raise ValueError(f"kernel has {inputs} channels, and the image {channels} in {groups} groups")
    return np.moveaxis(kernel.reshape(*taps, inputs, groups, features // groups), -2, -3)


def sort(array: Array, *, axis: int = -1, comparator: str | Callable[[Any, Any], bool] = "less") -> Array:
    """Sort along ``axis``, stable; a comparator says whether its first value goes before its second."""
    if comparator == "less":
        return np.sort(array, axis=axis, kind="stable")
    before = _named(comparator, "comparator")

    def compare(left: Any, right: Any) -> int:
        return int(bool(before(right, left))) - int(bool(before(left, right)))

    def sort_row(row: Array) -> Array:
        return np.array(sorted(row, key=functools.cmp_to_key(compare)), row.dtype)

    return np.apply_along_axis(sort_row, axis, array) if array.size else array.copy()


def top_k(array: Array, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """The ``k`` largest values along ``axis``, largest first, and their indices; of equal ones the first. NaN is
    larger than any number.
    """
    length = array.shape[axis]
    if not 0 <= k <= length:
        raise ValueError(f"k must be between 0 and {length}, the length of axis {axis}, not {k}")
    backwards = np.argsort(np.flip(array, axis), axis=axis, kind="stable")
    largest_first = length - 1 - np.flip(backwards, axis)
    indices = np.take(largest_first, np.arange(k), axis=axis)
    return np.take_along_axis(array, indices, axis), indices


def reduce(
    array: Array,
    *,
    reducer: str | Callable[[Any, Any], Any] = "add",
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Any:
    """Reduce ``axis`` (None: all) by a reducer's name, a ufunc, or a function of two arrays."""
    function = _named(reducer, "reducer")
    if isinstance(function, np.ufunc):
        return function.reduce(array, axis=axis, keepdims=keepdims)
    axes = tuple(range(array.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    rest = np.moveaxis(array, axes, range(len(axes)))
    rest = rest.reshape(-1, *rest.shape[len(axes) :])
    if not len(rest):
        raise ValueError("cannot reduce nothing: this reducer has no identity")
    result = functools.reduce(function, rest)
    return np.expand_dims(result, axes) if keepdims else result


def _named(function: str | Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    return LIBRARY.lookup(function, "host", kind=kind) if isinstance(function, str) else function


_KERNELS: dict[str, Callable[..., Any]] = {
    "conv1d": functools.partial(convolve, dimensions=1),
    "conv2d": functools.partial(convolve, dimensions=2),
    "conv3d": functools.partial(convolve, dimensions=3),
    "dot": np.dot,
    "transpose": np.transpose,
    "sort": sort,
    "top_k": top_k,
    "reduce": reduce,
    "fft": np.fft.fft,
    "ifft": np.fft.ifft,
    "rfft": np.fft.rfft,
    "irfft": np.fft.irfft,
}
_COMPARATORS: dict[str, Callable[..., Any]] = {"less": np.less, "greater": np.greater}
_REDUCERS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
}
for _functions, _kind in ((_KERNELS, "kernel"), (_COMPARATORS, "comparator"), (_REDUCERS, "reducer")):
    for _name, _function in _functions.items():
        LIBRARY.register(_name, "host", _function, kind=_kind)  # type: ignore[arg-type]
