"""GPU kernels by name, for CUDA and HIP: thin covers of CuPy's dot, transpose, sort, top-k, reduce and FFT.

They take and return CuPy arrays, on the current device and stream, and mean what the host's kernels mean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from plait.devices.gpu import driver
from plait.devices.library import LIBRARY, Kind
from plait.devices.sources import GPU_PLATFORMS


def sort(array: Any, *, axis: int = -1, comparator: str = "less") -> Any:
    """Sort along ``axis``; ValueError for another comparator than ``"less"`` and ``"greater"``."""
    cupy = driver.cupy()
    if comparator not in ("less", "greater"):
        raise ValueError(f"on a GPU the comparator must be 'less' or 'greater', not {comparator!r}")
    found = cupy.sort(array, axis=axis)
    return found if comparator == "less" else cupy.ascontiguousarray(cupy.flip(found, axis))


def top_k(array: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """The ``k`` largest values along ``axis``, largest first, and their indices; of equal ones the first. NaN is
    larger than any number.
    """
    cupy = driver.cupy()
    length = array.shape[axis]
    if not 0 <= k <= length:
        raise ValueError(f"k must be between 0 and {length}, the length of axis {axis}, not {k}")
    backwards = cupy.argsort(cupy.flip(array, axis), axis=axis, kind="stable")
    largest_first = length - 1 - cupy.flip(backwards, axis)
    indices = cupy.take(largest_first, cupy.arange(k), axis=axis)
    return cupy.take_along_axis(array, indices, axis), indices


def reduce(
    array: Any,
    *,
    reducer: str | Callable[[Any, Any], Any] = "add",
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Any:
    """Reduce ``axis`` (None: all) by a reducer's name or a function of two arrays."""
    cupy = driver.cupy()
    whole = _REDUCTIONS.get(reducer) if isinstance(reducer, str) else None
    if whole is not None:
        return whole(array, axis=axis, keepdims=keepdims)
    if isinstance(reducer, str):
        reducer = LIBRARY.lookup(reducer, driver.platform_name(), kind="reducer")
    axes = tuple(range(array.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    rest = cupy.moveaxis(array, axes, range(len(axes)))
    rest = rest.reshape(-1, *rest.shape[len(axes) :])
    if not len(rest):
        raise ValueError("cannot reduce nothing: this reducer has no identity")
    result = functools.reduce(reducer, rest)
    return cupy.expand_dims(result, axes) if keepdims else result


def _of_cupy(find: Callable[[], Any]) -> Callable[..., Any]:
    """The function that ``find`` gives, looked for when first called, so that CuPy is imported no sooner."""
    find = functools.cache(find)

    def call(*args: Any, **kwargs: Any) -> Any:
        return find()(*args, **kwargs)

    return call


# What CuPy does in one kernel; another reducer is applied pair by pair.
_REDUCTIONS = {
    "add": _of_cupy(lambda: driver.cupy().sum),
    "multiply": _of_cupy(lambda: driver.cupy().prod),
    "maximum": _of_cupy(lambda: driver.cupy().max),
    "minimum": _of_cupy(lambda: driver.cupy().min),
    "and": _of_cupy(lambda: driver.cupy().all),
    "or": _of_cupy(lambda: driver.cupy().any),
}
_KERNELS: dict[str, Callable[..., Any]] = {
    "dot": _of_cupy(lambda: driver.cupy().dot),
    "transpose": _of_cupy(lambda: driver.cupy().transpose),
    "sort": sort,
    "top_k": top_k,
    "reduce": reduce,
    "fft": _of_cupy(lambda: driver.cupy().fft.fft),
    "ifft": _of_cupy(lambda: driver.cupy().fft.ifft),
    "rfft": _of_cupy(lambda: driver.cupy().fft.rfft),
    "irfft": _of_cupy(lambda: driver.cupy().fft.irfft),
}
_COMPARATORS = {"less": _of_cupy(lambda: driver.cupy().less), "greater": _of_cupy(lambda: driver.cupy().greater)}
_REDUCERS = {
    "add": _of_cupy(lambda: driver.cupy().add),
    "multiply": _of_cupy(lambda: driver.cupy().multiply),
    "maximum": _of_cupy(lambda: driver.cupy().maximum),
    "minimum": _of_cupy(lambda: driver.cupy().minimum),
    "and": _of_cupy(lambda: driver.cupy().logical_and),
    "or": _of_cupy(lambda: driver.cupy().logical_or),
}
_KINDS: tuple[tuple[Kind, dict[str, Callable[..., Any]]], ...] = (
    ("kernel", _KERNELS),
    ("comparator", _COMPARATORS),
    ("reducer", _REDUCERS),
)
for _kind, _functions in _KINDS:
    for _name, _function in _functions.items():
        for _platform in GPU_PLATFORMS:
            LIBRARY.register(_name, _platform, _function, kind=_kind)
