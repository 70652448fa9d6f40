"""What a failed item was given, in words, taken while its inputs are still there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from plait.graph import Access, Buffer, BufferSlice, WorkItem
from plait.scheduler.bind import Values
from plait.scheduler.containers import leaves

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan

_SHORT = (int, float, complex, bool, str, bytes, type(None))
_LONGEST = 40


def describe_inputs(plan: Plan, position: int, values: Values) -> tuple[str, ...]:
    """One description for each argument: ``x float64 (1000,)``. Calls no code of the values' own."""
    item = plan.item(position)
    place = plan.kinds[position] // 3
    if not isinstance(item, WorkItem):
        buffer = getattr(item, "buffer", None)
        slot = getattr(item, "source_slot", -1)
        return (
            (_described(buffer.name, values[slot], buffer),) if buffer is not None and 0 <= slot < len(values) else ()
        )
    found = []
    for name, arg in [*(("", each) for each in item.args), *(item.kwargs or {}).items()]:
        for part in (each.target if isinstance(each, Access) else each for each in leaves(arg)):
            prefix = f"{name}=" if name else ""
            if isinstance(part, Buffer | BufferSlice):
                buffer = part.buffer if isinstance(part, BufferSlice) else part
                value = values[plan.expansion.slot(place, buffer.index)]
                found.append(
                    prefix
                    + _described(part.name, _sliced(value, part) if isinstance(part, BufferSlice) else value, part)
                )
            else:
                found.append(prefix + _described("", part, None))
    return tuple(found)


def _sliced(value: Any, part: BufferSlice) -> Any:
    if not isinstance(value, np.ndarray):
        return None
    try:
        for key in part.keys:
            value = value[key]
    except (IndexError, TypeError):  # maybe that is what failed
        return None
    return value


def _described(name: str, value: Any, declared: Buffer | BufferSlice | None) -> str:
    """Name, dtype and shape; of what is gone, as it was declared."""
    words = [name] if name else []
    if isinstance(value, np.ndarray) or (value is not None and type(value).__module__.partition(".")[0] == "cupy"):
        words += [str(getattr(value, "dtype", type(value).__name__)), str(getattr(value, "shape", ""))]
    elif declared is not None and value is None:
        buffer = declared.buffer if isinstance(declared, BufferSlice) else declared
        words += [str(each) for each in (buffer.dtype, declared.shape) if each is not None] or ["None"]
    else:
        text = repr(value) if type(value) in _SHORT else ""
        words.append(text if text and len(text) <= _LONGEST else f"{type(value).__module__}.{type(value).__qualname__}")
    return " ".join(words)
