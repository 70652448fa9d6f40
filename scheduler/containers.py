"""Values that hold other values: the containers that plait looks into, walked and rebuilt in one way.

These are lists, tuples, named tuples, dicts and what is derived from them. Anything else is a leaf: one value, whatever
it holds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any


def leaves(value: Any) -> Iterator[Any]:
    """The values in a container, at any depth; of anything else the value itself."""
    if isinstance(value, dict):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A container of the same kind with ``leaf`` of each value in it; of anything else that of the value itself."""
    if isinstance(value, dict):
        parts = {key: rebuilt(part, leaf) for key, part in value.items()}
        if type(value) is dict:
            return parts
        made = copy.copy(value)
        for key, part in parts.items():
            made[key] = part
        return made
    if isinstance(value, list | tuple):
        found = [rebuilt(part, leaf) for part in value]
        if type(value) is list:
            return found
        return type(value)._make(found) if hasattr(value, "_make") else type(value)(found)
    return leaf(value)
