"""Results in containers: what shares memory with a buffer that a later item updates is copied, wherever it is held."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plait
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plait import Graph
from plait.testing import run_serial

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True, slots=True)
class Frozen:
    part: Any
    other: int = 7


@dataclass
class Open:
    part: Any
    made: Any = field(default=None, init=False)


class Names(dict):
    pass


def objects(part: Any) -> Any:
    array = np.empty(2, dtype=object)
    array[0], array[1] = part, "text"
    return array


WRAPS = {
    "list": (lambda part: [1, part], lambda held: held[1]),
    "tuple": (lambda part: (part,), lambda held: held[0]),
    "namedtuple": (lambda part: Pair(part, None), lambda held: held.left),
    "dict": (lambda part: {"a": part}, lambda held: held["a"]),
    "ordered": (lambda part: OrderedDict(a=part), lambda held: held["a"]),
    "names": (lambda part: Names(a=part), lambda held: held["a"]),
    "frozen": (Frozen, lambda held: held.part),
    "open": (Open, lambda held: held.part),
    "objects": (objects, lambda held: held[0]),
}
kinds = st.lists(st.sampled_from(sorted(WRAPS)), min_size=0, max_size=3)


def wrapped(names: list[str], part: Any) -> Any:
    for name in names:
        part = WRAPS[name][0](part)
    return part


def unwrapped(names: list[str], held: Any) -> Any:
    for name in reversed(names):
        held = WRAPS[name][1](held)
    return held


def types(names: list[str], held: Any) -> list[type]:
    found = []
    for name in reversed(names):
        found.append(type(held))
        held = WRAPS[name][1](held)
    return found


def updated_later(names: list[str], *, through: list[str] | None = None) -> Graph:
    g = Graph()
    x = g.buffer("x", shape=(4,), fill=1.0)
    source = x if through is None else g.call(lambda x: wrapped(through, x), x)
    view = g.call(lambda held: wrapped(names, unwrapped(through or [], held)[1:3]), source)
    g.call(lambda x: x.__imul__(5), plait.update(x))
    g.output("early", view)
    g.output("late", x)
    return g


@given(kinds)
def test_a_view_in_any_container_is_copied_before_the_buffer_changes(names: list[str]) -> None:
    g = updated_later(names)
    held = plait.run(g)["early"]
    assert types(names, held) == types(names, wrapped(names, np.ones(2)))
    assert unwrapped(names, held).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", sorted(WRAPS))
def test_also_when_it_comes_through_a_container(name: str) -> None:
    g = updated_later(["dict"], through=[name])
    assert plait.run(g)["early"]["a"].tolist() == [1.0, 1.0]


def test_what_shares_nothing_is_the_very_object_that_was_returned() -> None:
    kept = {"a": np.ones(3), "b": Frozen([np.zeros(2)])}
    g = Graph()
    x = g.buffer("x", shape=(4,), fill=1.0)
    y = g.call(lambda x: kept, x)
    g.call(lambda x: x.__imul__(5), plait.update(x))
    g.output("y", y)
    assert plait.run(g)["y"] is kept


def test_the_oracle_agrees() -> None:
    g = updated_later(["dict", "namedtuple"])
    serial, run = run_serial(g), plait.run(g)
    assert serial["early"].left["a"].tolist() == run["early"].left["a"].tolist()
