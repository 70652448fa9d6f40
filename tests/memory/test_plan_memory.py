"""What a plan says of its memory before it runs is what a run then holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import plait
import trio
from hypothesis import given, settings
from hypothesis import strategies as st


def add_rows(target: np.ndarray, *others: np.ndarray) -> None:
    for other in others:
        target += other.sum()


@st.composite
def static_programs(draw: st.DrawFn) -> plait.Graph:
    """Calls of known sizes over buffers and results, some of them outputs."""
    g = plait.Graph("static")
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    values: list[Any] = [g.buffer(f"b{k}", (size,), "float64", fill=0) for k, size in enumerate(sizes)]
    used: set[int] = set()
    for k in range(draw(st.integers(1, 12))):
        sources = draw(st.lists(st.sampled_from(values), max_size=3))
        if draw(st.booleans()):
            size = draw(st.integers(1, 40))
            values.append(g.options(nbytes=8 * size).call(made, size, *sources))
        else:
            target = draw(st.sampled_from([each for each in values if each.kind == "buffer"]))
            g.call(add_rows, plait.update(target), *[each for each in sources if each != target])
        used.update(each.index for each in sources)
        if draw(st.booleans()):
            g.output(f"out{k}", values[-1])
            used.add(values[-1].index)
    for each in values:  # a result that nobody wants may be thrown away at once
        if each.index not in used:
            g.output(f"rest{each.index}", each)
    return g


def made(size: int, *sources: np.ndarray) -> np.ndarray:
    return np.full(size, float(sum(source.sum() for source in sources)))


@settings(deadline=None, max_examples=60)
@given(g=static_programs())
def test_one_stream_holds_at_most_what_was_predicted_and_just_that(g: plait.Graph) -> None:
    peaks: list[int | None] = []
    plans: list[Any] = []
    plait.run(
        g,
        scheduler={"devices": "host", "streams": 1, "trace": True},
        watch=lambda run: (peaks.append(run.report().peak_bytes), plans.append(run.plan)),
    )
    use = plans[0].memory["host"]
    assert not use.unknown
    assert peaks[0] == use.peak


def test_kinds_of_bytes_are_told_apart() -> None:
    g = plait.Graph("kinds")
    x = g.input("x", (10,), "float64")
    w = g.constant(np.ones(20), name="w")
    acc = g.buffer("acc", (5,), "float64", fill=0)
    y = g.options(nbytes=80).call(np.negative, x)
    g.call(np.add, acc, g.options(nbytes=8).call(np.sum, w), out=plait.update(acc))
    g.output("y", y)
    g.output("acc", acc)
    g.output("x", x)
    use = _memory(g)
    assert (use.argument, use.output, use.alias) == (80 + 160, 80 + 40 + 80, 80)
    assert use.temporary == 8 and use.unknown == ()
    assert use.largest == 80 and use.largest_item == "negative#0"


def test_unknown_sizes_are_named() -> None:
    g = plait.Graph("unknown")
    g.output("y", g.options(name="grow").call(np.ones, 7))
    assert _memory(g).unknown == ("grow",)


def _memory(g: plait.Graph) -> Any:
    found: list[Any] = []

    async def main() -> None:
        async with plait.open_scheduler(devices="host") as scheduler:
            found.append(scheduler.compile(g).memory["host"])

    trio.run(main)
    return found[0]
