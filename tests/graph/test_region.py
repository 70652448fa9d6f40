"""Regions agree with NumPy: the elements, the overlap, the cover and the shape of basic slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices
from plait.graph.region import (
    OPEN,
    Region,
    compose,
    count,
    covers,
    is_whole,
    normalise,
    overlaps,
    sliced_shape,
)

SHAPES = array_shapes(min_dims=1, max_dims=3, max_side=9)


def mask_of(region: Region | None, shape: tuple[int, ...]) -> Any:
    mask = np.zeros(shape, bool)
    mask[tuple(slice(*axis) for axis in region or ())] = True
    return mask


def touched(shape: tuple[int, ...], *keys: Any) -> Any:
    ids = np.arange(int(np.prod(shape))).reshape(shape)
    for key in keys:
        ids = ids[key]
    mask = np.zeros(int(np.prod(shape)), bool)
    mask[np.asarray(ids).ravel()] = True
    return mask.reshape(shape), np.shape(ids)


@given(st.data())
def test_a_key_touches_what_numpy_touches(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    key = data.draw(basic_indices(shape, allow_newaxis=True))
    region = normalise(key, shape)
    mask, result = touched(shape, key)
    assert region is not None
    assert count(region) == mask.sum()
    assert sliced_shape(key, shape) == result
    if mask.any():
        assert (mask_of(region, shape) == mask).all()
        assert is_whole(region, shape) == bool(mask.all())


@given(st.data())
def test_a_slice_of_a_slice_touches_what_numpy_touches(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    keys: list[Any] = []
    view = shape
    for _ in range(3):
        if not view or 0 in view:
            break
        keys.append(data.draw(basic_indices(view, allow_newaxis=True, max_dims=4)))
        view = sliced_shape(keys[-1], view)
    region = compose(keys, shape)
    mask, _ = touched(shape, *keys)
    assert region is not None and count(region) == mask.sum()
    if mask.any():
        assert (mask_of(region, shape) == mask).all()


@given(st.data())
def test_overlap_and_cover_are_exact(data: st.DataObject) -> None:
    shape = data.draw(array_shapes(min_dims=1, max_dims=2, max_side=40))
    one, two = (data.draw(basic_indices(shape)) for _ in range(2))
    a, b = normalise(one, shape), normalise(two, shape)
    in_a, in_b = touched(shape, one)[0], touched(shape, two)[0]
    assert overlaps(a, b) == overlaps(b, a) == bool((in_a & in_b).any())
    assert covers(a, b) == bool((in_a | ~in_b).all())
    assert overlaps(None, b) == overlaps(b, None) == bool(in_b.any())
    assert covers(None, b)


@given(st.data())
def test_an_unknown_shape_gives_a_superset(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    key = data.draw(basic_indices(shape, allow_newaxis=True))
    region = normalise(key, None)
    mask, _ = touched(shape, key)
    assert not (mask & ~mask_of(region, shape)).any()


def test_an_unknown_shape_keeps_what_its_bounds_say() -> None:
    assert normalise(slice(0, 10), None) == ((0, 10, 1),)
    assert normalise(slice(5, None), None) == ((5, OPEN, 1),)
    assert normalise(3, None) == ((3, 4, 1),)
    assert normalise(slice(None), None) is None
    assert normalise(-1, None) is None
    assert not overlaps(normalise(slice(0, 5), None), normalise(slice(5, None), None))


def test_equal_sets_have_equal_regions() -> None:
    assert normalise(slice(None, None, -3), (10,)) == normalise(slice(0, 10, 3), (10,)) == ((0, 10, 3),)
    assert normalise(slice(4, 5, 7), (10,)) == normalise(-6, (10,)) == ((4, 5, 1),)
    assert normalise(slice(5, 2), (10,)) == ((0, 0, 1),)


@pytest.mark.parametrize("key", [[0, 1], np.array([1]), True, np.bool_(True), "a", 1.5, (0, [1])])
def test_only_basic_slicing_is_an_access(key: Any) -> None:
    for shape in ((4, 4), None):
        with pytest.raises(TypeError, match="only basic slicing is an access"):
            normalise(key, shape)


@pytest.mark.parametrize("key", [4, -5, (0, 0, 0), (0, 9)])
def test_an_index_outside_names_the_shape(key: Any) -> None:
    with pytest.raises(IndexError, match=r"\(4, 3\)"):
        normalise(key, (4, 3))
