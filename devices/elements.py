"""What streams check before they copy and fill NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from plait.errors import DeviceError


def writable(target: Any, what: str, stream: str) -> np.ndarray[Any, Any]:
    """``target`` as an array that may be written; DeviceError if it is none."""
    if not isinstance(target, np.ndarray):
        raise DeviceError(f"{what} on stream {stream}: the target must be a NumPy array, not {type(target).__name__}")
    if not target.flags.writeable:
        raise DeviceError(f"{what} on stream {stream}: the target is read-only")
    return target


def matching(target: Any, source: Any, stream: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Both ends of a copy as arrays; DeviceError unless they have one shape and one dtype."""
    to, read = writable(target, "copy", stream), np.asarray(source)
    if to.shape != read.shape:
        raise DeviceError(f"copy on stream {stream}: the source has shape {read.shape}, the target {to.shape}")
    if to.dtype != read.dtype:
        raise DeviceError(f"copy on stream {stream}: the source has dtype {read.dtype}, the target {to.dtype}")
    return to, read


def element(value: Any, dtype: np.dtype[Any], stream: str) -> np.ndarray[Any, Any]:
    """The value as one element; across kinds (0 for a bool, 2.0 for an int) only if it stays the same."""
    made = np.zeros((), dtype)
    try:
        try:
            np.copyto(made, value)
        except TypeError:
            made[()] = value
            if made != value:
                raise
    except (TypeError, ValueError, OverflowError) as error:
        raise DeviceError(f"fill on stream {stream}: {value!r} does not fit {dtype}: {error}") from error
    return made
