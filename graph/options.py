"""Options of a work item: their names, their checks, and how inner ones override outer ones."""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plait.errors import GraphError


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of an item beside its work. Units: ``timeout`` and ``cost`` are seconds.

    ``cost`` is one number for every device, or a mapping from device kind (``"host"``, ``"cuda"``) to one.
    ``nbytes`` is an upper bound of the bytes of each result: what a memory limit keeps free for it, and what a dry
    simulation takes for its size. ``flops`` are operations, of which a simulated device knows how fast it is at them.
    A larger ``priority`` is more urgent. ``retries`` counts the attempts after the first.
    """

    name: str | None = None
    outputs: int = 1
    device: str | None = None
    priority: int = 0
    timeout: float | None = None
    retries: int = 0
    cost: float | Mapping[str, float] | None = None
    nbytes: int | None = None
    flops: float | None = None
    after: tuple[Any, ...] = ()
    groups: tuple[str, ...] = ()

    def cost_on(self, platform: str) -> float | None:
        """Seconds on devices of ``platform``, None where unknown."""
        return self.cost.get(platform) if isinstance(self.cost, Mapping) else self.cost


DEFAULT = Options()
NAMES = tuple(field.name for field in dataclasses.fields(Options) if field.name != "groups")
SHAREABLE = tuple(name for name in NAMES if name not in ("name", "outputs"))


def merged(base: Options, given: Mapping[str, Any], allowed: tuple[str, ...] = NAMES) -> Options:
    """``base`` with the checked ``given`` options over it; GraphError names a wrong one and what to change."""
    for key, value in given.items():
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise GraphError(f"unknown option {key!r} (known here: {', '.join(allowed)}){hint}")
        _CHECKS[key](value)
    changes = dict(given)
    if "after" in changes:
        changes["after"] = (*base.after, *changes["after"])
    return dataclasses.replace(base, **changes)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _is_integer(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not isinstance(value, bool)


def _check(condition: bool, option: str, wanted: str, value: object) -> None:
    if not condition:
        raise GraphError(f"option {option!r} must be {wanted}, not {value!r}")


def _name(value: object) -> None:
    _check(isinstance(value, str) and value.strip() != "", "name", "a non-empty string", value)


def _outputs(value: Any) -> None:
    _check(_is_integer(value) and value >= 1, "outputs", "an integer of at least 1", value)


def _device(value: object) -> None:
    _check(value is None or (isinstance(value, str) and value != ""), "device", "a device name", value)


def _priority(value: object) -> None:
    _check(_is_integer(value), "priority", "an integer (larger is more urgent)", value)


def _timeout(value: Any) -> None:
    _check(value is None or (_is_number(value) and value > 0), "timeout", "a positive number of seconds", value)


def _retries(value: Any) -> None:
    _check(_is_integer(value) and value >= 0, "retries", "a non-negative integer", value)


def _cost(value: Any) -> None:
    costs = list(value.values()) if isinstance(value, Mapping) else [] if value is None else [value]
    for cost in costs:
        _check(_is_number(cost) and 0 <= cost < math.inf, "cost", "non-negative, finite seconds", value)


def _nbytes(value: Any) -> None:
    _check(
        value is None or (_is_integer(value) and value >= 0),
        "nbytes",
        "a non-negative integer: bytes of each result",
        value,
    )


def _flops(value: Any) -> None:
    good = value is None or (_is_number(value) and 0 <= value < math.inf)
    _check(good, "flops", "a non-negative, finite number of operations", value)


def _after(value: object) -> None:
    _check(isinstance(value, Iterable) and not isinstance(value, str), "after", "a list of items", value)


_CHECKS = {
    "name": _name,
    "outputs": _outputs,
    "device": _device,
    "priority": _priority,
    "timeout": _timeout,
    "retries": _retries,
    "cost": _cost,
    "nbytes": _nbytes,
    "flops": _flops,
    "after": _after,
}
