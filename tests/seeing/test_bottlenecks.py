"""Programs with one bottleneck each: the report names it first, shows it, and says what to change."""

from dataclasses import replace

import numpy as np
import pytest
from plait import Graph
from plait.scheduler import compare
from plait.scheduler.trace import Limit
from plait.testing import layered
from trace_kit import calm, made, spin

MS = 1_000_000


def first(trace):
    return trace.report().advice[0]


def chain():
    """Each item needs the one before: nothing can run beside it."""
    g = Graph("chain")
    value = g.call(spin)
    for _ in range(60):
        value = g.call(spin, value)
    g.output("end", value)
    return g


def copy_bound():
    """Megabytes are staged slice by slice, and hardly anything is done with them."""
    g, count, size = Graph("copies"), 24, 1 << 18
    x, staged = g.input("x", (count * size,)), g.buffer("staged", (count * size,))
    for _ in range(3):
        for k in range(count):
            part = slice(k * size, (k + 1) * size)
            g.copy(staged[part], x[part])
            g.call(lambda each: float(each[0]), staged[part])
    return g, {"x": np.ones(count * size)}


def too_few_streams():
    """Independent items, for one stream."""
    g = Graph("independent")
    for _ in range(60):
        g.call(spin)
    return g


def test_a_serial_chain():
    trace = calm(chain())
    advice = first(trace)
    assert advice.cause == "dependencies" and "61 items ran one after the other" in advice.evidence
    assert "more streams will not help" in advice.change
    assert trace.report().critical_path_s == pytest.approx(trace.report().bound_s)


def test_copies():
    graph, inputs = copy_bound()
    advice = first(calm(graph, inputs=inputs))
    assert advice.cause == "copies" and "144 MiB at " in advice.evidence and "copy less" in advice.change


def test_too_few_streams():
    trace = replace(calm(too_few_streams(), streams=1), cores=8)
    advice = first(trace)
    assert advice.cause == "streams" and "waited for one of 1 host/compute stream, " in advice.evidence
    assert "streams=8" in advice.change
    enough = first(replace(trace, cores=1))
    assert enough.cause == "streams" and "all were busy" in enough.change and "streams=" not in enough.change


def test_tiny_items_for_which_the_host_is_the_bottleneck():
    advice = first(calm(layered(40, 100)))
    assert (
        advice.cause == "host" and "of 4000 items took" in advice.evidence and "do more in each item" in advice.change
    )


def test_memory_stalls():
    # Four items that could run side by side; for each of them the memory of the one before must be free.
    rows = [(k, k % 2, 10 * k * MS, 10 * (k + 1) * MS) for k in range(4)]
    stalls = [(0, 10 * k * MS, 3 << 30) for k in range(1, 4)]
    report = made(rows, stalls=stalls).report()
    assert report.advice[0].cause == "memory" and report.advice[0].share == pytest.approx(0.75)
    assert "held back 3 times" in report.advice[0].evidence and "3 GiB" in report.advice[0].evidence
    assert "raise memory_limit" in report.advice[0].change
    by_name = {use.name: use for use in report.streams}
    assert by_name["host/compute:1"].memory_s == pytest.approx(0.02)
    assert made(rows).report().advice[0].cause != "memory"


def test_a_memory_limit_that_makes_a_run_serial():
    values = np.random.default_rng(0).random(1 << 19)
    g = Graph("large results")
    for k in range(6):
        g.output(f"least{k}", g.call(lambda each: float(each[0]), g.call(np.sort, values)))
    report = calm(g, memory_limit=values.nbytes + 100).report()
    assert report.advice[0].cause == "memory" and "raise memory_limit" in report.advice[0].change
    assert report.peak_bytes <= values.nbytes + 100


def test_a_group_without_room():
    rows = [(k, k % 2, 10 * k * MS, 10 * (k + 1) * MS) for k in range(4)]
    advice = first(made(rows, limits=[Limit("disk", 1, (0, 1, 2, 3))]))
    assert advice.cause == "limit" and "disk (limit 1)" in advice.evidence


def test_async_items_and_a_late_host():
    assert first(made([(0, 4, 0, 50 * MS), (1, 0, 50 * MS, 51 * MS)], [(0, 1)])).cause == "awaits"
    late = first(made([(0, 3, 0, MS), (1, 3, 20 * MS, 21 * MS)], [(0, 1)]))
    assert late.cause == "host" and "stood still for 19 ms" in late.evidence and "plan.capture()" in late.change


def test_a_comparison_says_what_got_slower_and_why():
    before = made([(0, 0, 0, 10 * MS), (1, 1, 0, 10 * MS)])
    after = made([(0, 0, 0, 10 * MS), (1, 0, 10 * MS, 20 * MS)])
    found = compare(before, after)
    assert found.makespan.growth == pytest.approx(0.01)
    assert found.spent[0].name == "streams" and found.spent[0].growth == pytest.approx(0.01)
    assert sum(change.growth for change in found.spent) == pytest.approx(found.makespan.growth)
    assert not any(change.growth for change in found.items) and found.delays[0].name == "stream"
    assert "no part changed" in str(compare(before, before))
    other = replace(before, names=("i0", "new"))
    assert compare(before, other).added == ("new",) and "only before: i1" in str(compare(before, other))


def test_the_peak_names_its_holders():
    report = made([(0, 0, 0, 9)], held=[(0, 4, 100), (4, 9, 50), (5, 6, 60)]).report()
    assert report.peak_bytes == 150 and report.peak_holders == (("b0", 100), ("b1", 50))


def test_the_bound_counts_no_more_streams_than_can_run_at_once():
    rows = [(0, 0, 0, 100), (1, 1, 100, 200), (2, 0, 200, 300), (3, 1, 300, 400)]
    assert dict(made(rows, cores=1).report().bounds)["host/compute"] == pytest.approx(400e-9)
    assert dict(made(rows, cores=2).report().bounds)["host/compute"] == pytest.approx(200e-9)
    assert dict(made(rows, cores=8).report().bounds)["host/compute"] == pytest.approx(200e-9)
    assert dict(made(rows, cores=0).report().bounds)["host/compute"] == pytest.approx(
        200e-9
    )  # a file that says nothing


def test_a_stream_that_lent_its_thread_counts_as_well():
    rows = [(0, 0, 0, 100), (1, 1, 10, 90)]  # the first waits for a run that the second is of
    report = made(rows, cores=1).report()
    assert dict(report.bounds)["host/compute"] == pytest.approx(90e-9)
    assert report.over_bound >= 1
