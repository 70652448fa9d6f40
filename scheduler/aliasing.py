"""Which arrays of a result share memory with an item's arguments, and copies of those."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from plait.scheduler.containers import leaves, rebuilt


def unshared(result: Any, args: list[Any]) -> Any:
    """The result with copies of the arrays in it that share memory with an array among the arguments."""
    given = [array for arg in args for array in _arrays(arg)]

    def shares(array: Any) -> bool:
        return any(_shares(array, other) for other in given)

    def own(value: Any) -> Any:
        parts = _parts_of(value)
        if (not _is_array(value) or not shares(value)) and not any(map(shares, _arrays(list(parts.values())))):
            return value
        made = copy.copy(value) if parts else value.copy()
        for key, part in parts.items():
            if isinstance(made, np.ndarray):
                made[key] = rebuilt(part, own)
            else:
                object.__setattr__(made, key, rebuilt(part, own))  # also where it is frozen
        return made

    return rebuilt(result, own) if any(map(shares, _arrays(result))) else result


def _arrays(value: Any) -> Iterator[Any]:
    """The arrays in a value, also those in dataclasses and in arrays of objects."""
    for part in leaves(value):
        if _is_array(part):
            yield part
        for inner in _parts_of(part).values():
            yield from _arrays(inner)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__")


def _parts_of(value: Any) -> dict[Any, Any]:
    """The values in a dataclass by field, in an array of objects by index."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value) if hasattr(value, each.name)}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return dict(np.ndenumerate(value))
    return {}


def _shares(result: Any, array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return isinstance(result, np.ndarray) and bool(np.may_share_memory(result, array))
    return _allocation(result) is not None and _allocation(result) is _allocation(array)


def _allocation(array: Any) -> Any:
    """What a device array's bytes were allocated as: the same object for all views of them."""
    return getattr(getattr(array, "data", None), "mem", None)
