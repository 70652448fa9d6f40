"""Which arrays of a result share memory with an item's arguments, and copies of those."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from plait.scheduler.containers import leaves, rebuilt


def unshared(result: Any, args: list[Any]) -> Any:
    """The result with copies of the arrays in it that share memory with an array among the arguments."""
    given = [array for arg in args for array in _arrays(arg)]
    if not any(_shares_any(array, given) for array in _arrays(result)):
        return result
    return rebuilt(result, partial(_own, given=given))


def _own(value: Any, given: list[Any]) -> Any:
    """One value of a container, as a copy where it shares memory. (Not a function in the one above: that would refer to
    itself, and keep the arguments until the collector runs.)"""
    parts = _parts_of(value)
    inner = any(_shares_any(array, given) for array in _arrays(list(parts.values())))
    if not inner and not (_is_array(value) and _shares_any(value, given)):
        return value
    made = copy.copy(value) if parts else value.copy()
    for key, part in parts.items():
        mine = rebuilt(part, partial(_own, given=given))
        if isinstance(made, np.ndarray):
            made[key] = mine
        else:
            object.__setattr__(made, key, mine)  # also where it is frozen
    return made


def _shares_any(array: Any, given: list[Any]) -> bool:
    return any(_shares(array, other) for other in given)


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
