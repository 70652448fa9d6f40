"""Regions: which elements of a buffer a chain of NumPy basic indices touches.

A region is one arithmetic progression ``(start, stop, step)`` per axis of the *base* buffer, with ``step >
0`` and ``stop`` one past the last element; the region is their product. An empty axis is ``(0, 0, 1)`` and a
single element has step 1, so equal sets have equal regions. ``None`` stands for the whole buffer. A region
may have fewer axes than its buffer: the missing trailing axes are whole.

Where a shape is unknown the region is a superset of what is touched. That is always safe for hazards: an edge
too many, never one too few.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import zip_longest
from math import gcd
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

Axis = tuple[int, int, int]
Region = tuple[Axis, ...]
Shape = tuple[int, ...]

OPEN = 1 << 62
"""The stop of an axis whose end is not known."""
EMPTY: Axis = (0, 0, 1)
FULL: Axis = (0, OPEN, 1)


class _View(NamedTuple):
    """A strided view: ``(start, step, length)`` per base axis (step signed, 0 for a dropped axis), and for
    each axis of the view the base axis that it walks (-1 for ``newaxis``)."""

    base: tuple[tuple[int, int, int], ...]
    axes: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        return tuple(1 if axis < 0 else self.base[axis][2] for axis in self.axes)


def normalise(key: Any, shape: Shape | None) -> Region | None:
    """The region that ``buffer[key]`` touches; ``None`` if that may be anywhere in a buffer of unknown shape.

    ``key`` is a basic index: int, slice, ``...``, ``None`` or a tuple of these. Raises TypeError for anything
    else and IndexError, naming the shape, for what NumPy refuses too.
    """
    if shape is None:
        return _unknown(key)
    return _region(_slice(_whole(shape), key))


def compose(keys: Sequence[Any], shape: Shape | None) -> Region | None:
    """The region of the base that a slice of a slice touches: ``base[keys[0]][keys[1]]…`` with ``base.shape
    == shape``.

    Takes the keys rather than a region, since a region forgets direction and dropped axes. With an unknown
    shape only the first key narrows the region.
    """
    if shape is None:
        for key in keys:
            _entries(key)
        return _unknown(keys[0]) if keys else None
    view = _whole(shape)
    for key in keys:
        view = _slice(view, key)
    return _region(view)


def sliced_shape(key: Any, shape: Shape) -> Shape:
    """The shape of ``array[key]`` for an array of this shape."""
    return _slice(_whole(shape), key).shape


def is_whole(region: Region | None, shape: Shape | None) -> bool:
    """Whether the region is the whole of a buffer of this shape."""
    if region is None:
        return True
    if shape is None:
        return all(axis == FULL for axis in region)
    return len(region) <= len(shape) and all(
        axis == ((0, size, 1) if size else EMPTY) for axis, size in zip(region, shape, strict=False)
    )


def is_empty(region: Region | None) -> bool:
    """Whether the region holds no element."""
    return region is not None and any(start >= stop for start, stop, _ in region)


def count(region: Region) -> int:
    """How many elements the region holds."""
    total = 1
    for start, stop, step in region:
        total *= len(range(start, stop, step))
    return total


def overlaps(a: Region | None, b: Region | None) -> bool:
    """Whether two regions of one buffer share an element. Exact, steps included; whole shares with all but
    empty."""
    if a is None:
        return not is_empty(b)
    if b is None:
        return not is_empty(a)
    if len(a) == len(b):
        return all(map(axes_overlap, a, b))
    return all(axes_overlap(x, y) for x, y in zip_longest(a, b, fillvalue=FULL))


def covers(a: Region | None, b: Region | None) -> bool:
    """Whether ``a`` holds every element of ``b``. Exact, except that only a region with nothing but open full
    axes is known to cover the whole buffer."""
    if a is None or is_empty(b):
        return True
    if b is None:
        return all(axis == FULL for axis in a)
    if len(a) == len(b):
        return all(map(axis_covers, a, b))
    return all(axis_covers(x, y) for x, y in zip_longest(a, b, fillvalue=FULL))


def axes_overlap(a: Axis, b: Axis) -> bool:
    """Whether two progressions meet: the least common element at or after both starts (Chinese remainder
    theorem) against the nearer stop."""
    a_start, a_stop, s = a
    b_start, b_stop, t = b
    low = a_start if a_start > b_start else b_start
    high = a_stop if a_stop < b_stop else b_stop
    if low >= high:
        return False
    if s == 1 and t == 1:
        return True
    common = gcd(s, t)
    if (b_start - a_start) % common:
        return False
    turns = t // common
    first = a_start + s * ((b_start - a_start) // common * pow(s // common, -1, turns) % turns)
    period = s * turns
    return first + -((first - low) // period) * period < high


def axis_covers(a: Axis, b: Axis) -> bool:
    """Whether progression ``a`` holds every element of the non-empty progression ``b``."""
    start, stop, step = a
    if b[0] < start or b[1] > stop or (b[0] - start) % step:
        return False
    return b[1] - b[0] == 1 or b[2] % step == 0


def _entries(key: Any) -> tuple[Any, ...]:
    entries = key if isinstance(key, tuple) else (key,)
    ellipses = 0
    for entry in entries:
        if entry is Ellipsis:
            ellipses += 1
        elif entry is not None and not isinstance(entry, slice) and not _is_int(entry):
            raise TypeError(
                f"only basic slicing is an access: ints, slices, ... and None, not {type(entry).__name__} {entry!r}"
            )
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    return entries


def _is_int(entry: Any) -> bool:
    if isinstance(entry, (bool, np.bool_, np.ndarray)):
        return False
    return isinstance(entry, SupportsIndex)


def _whole(shape: Shape) -> _View:
    return _View(tuple((0, 1, size) for size in shape), tuple(range(len(shape))))


def _slice(view: _View, key: Any) -> _View:
    """The view ``view[key]``."""
    entries = _entries(key)
    shape = view.shape
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if used > len(shape):
        raise IndexError(f"too many indices: {used} for the {len(shape)} axes of shape {shape}")
    if not any(entry is Ellipsis for entry in entries):
        entries += (Ellipsis,)
    base = list(view.base)
    axes: list[int] = []
    at = 0
    for entry in entries:
        if entry is None:
            axes.append(-1)
        elif entry is Ellipsis:
            rest = len(shape) - used
            axes.extend(view.axes[at : at + rest])
            at += rest
        else:
            axis, size = view.axes[at], shape[at]
            if isinstance(entry, slice):
                start, step, length = _walk(entry, size)
                axis = _narrow(base, axis, start, step, length)
                axes.append(axis)
            else:
                index = operator.index(entry)
                if not -size <= index < size:
                    raise IndexError(f"index {index} is out of bounds for axis {at} of shape {shape}")
                _narrow(base, axis, index % size, 0, 1)
            at += 1
    return _View(tuple(base), tuple(axes))


def _walk(entry: slice, size: int) -> tuple[int, int, int]:
    walk = range(*entry.indices(size))
    return walk.start, walk.step, len(walk)


def _narrow(base: list[tuple[int, int, int]], axis: int, start: int, step: int, length: int) -> int:
    """Walk one axis of the base by a slice of it; a ``newaxis`` that is sliced to nothing becomes an empty
    axis."""
    if axis < 0:
        if length:
            return axis
        base.append((0, 1, 0))
        return len(base) - 1
    origin, stride, _ = base[axis]
    base[axis] = (origin + start * stride, stride * step, length)
    return axis


def _region(view: _View) -> Region:
    return tuple(_axis(start, step, length) for start, step, length in view.base)


def _axis(start: int, step: int, length: int) -> Axis:
    if length == 0:
        return EMPTY
    if length == 1:
        return (start, start + 1, 1)
    last = start + (length - 1) * step
    return (start, last + 1, step) if step > 0 else (last, start + 1, -step)


def _unknown(key: Any) -> Region | None:
    """A superset of what the key touches in a buffer of unknown shape."""
    region: list[Axis] = []
    for entry in _entries(key):
        if entry is Ellipsis:
            break  # which axes the rest means depends on the number of axes
        if isinstance(entry, slice):
            region.append(_unknown_slice(entry))
        elif entry is not None:
            index = operator.index(entry)
            region.append((index, index + 1, 1) if index >= 0 else FULL)
    while region and region[-1] == FULL:
        region.pop()
    return tuple(region) or None


def _unknown_slice(entry: slice) -> Axis:
    step = 1 if entry.step is None else operator.index(entry.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    start = None if entry.start is None else operator.index(entry.start)
    stop = None if entry.stop is None else operator.index(entry.stop)
    if step < 0:  # walked from the far end, which may be clipped: any phase
        low = stop + 1 if stop is not None and stop >= 0 else 0
        high = start + 1 if start is not None and start >= 0 else OPEN
        return (low, high, 1) if low < high else EMPTY
    if start is not None and start < 0:
        return (0, stop, 1) if stop is not None and stop > 0 else EMPTY if stop == 0 else FULL
    low = start or 0
    return _axis(low, step, len(range(low, OPEN if stop is None or stop < 0 else stop, step)))
