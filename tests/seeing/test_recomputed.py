"""The report's figures are those that a script finds in the raw trace by other means."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from plait import Graph, Trace
from plait.testing import layered
from trace_kit import made, spin, traced, traces

_SPEC = importlib.util.spec_from_file_location(
    "recompute_report", Path(__file__).parents[2] / "scripts" / "recompute_report.py"
)
recompute = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(recompute)


def agree(trace, path):
    """Save, recompute, compare every figure."""
    trace.save(path)
    found, report = recompute.figures(path), Trace.load(path).report()
    assert report == trace.report()

    def ns(seconds):
        return round(seconds * 1e9)

    assert found["items"] == report.items and found["makespan"] == ns(report.makespan_s)
    assert found["critical path"] == list(report.critical_path)
    assert ns(report.critical_path_s) == found["bounds"]["critical path"]
    assert {name: value / 1e9 for name, value in found["bounds"].items()} == pytest.approx(dict(report.bounds))
    assert found["busy"] == {use.name: ns(use.busy_s) for use in report.streams}
    assert found["waiting"] == {
        use.name: {"wait": ns(use.wait_s), "memory": ns(use.memory_s), "host": ns(use.host_s), "idle": ns(use.idle_s)}
        for use in report.streams
    }
    assert (found["hidden"] is None) == (report.copies_hidden is None)
    assert found["hidden"] is None or found["hidden"] == pytest.approx(report.copies_hidden)
    assert (found["copied"], found["peak"]) == (report.copied_bytes, report.peak_bytes)
    assert {cause: each for cause, each in found["spent"].items() if each} == {
        cause: ns(seconds) for cause, seconds in report.spent
    }


@settings(deadline=None, max_examples=150)
@given(trace=traces())
def test_any_trace(trace, tmp_path_factory):
    agree(trace, tmp_path_factory.getbasetemp() / "any.json")


def test_real_runs(tmp_path):
    g = Graph("copies")
    x, b = g.input("x", (4096,)), g.buffer("b", (4096,))
    for k in range(4):
        part = slice(1024 * k, 1024 * (k + 1))
        g.copy(b[part], x[part])
        g.output(f"sum{k}", g.call(np.sum, b[part]))
    agree(traced(g, inputs={"x": np.ones(4096)}).trace, tmp_path / "copies.json")
    agree(traced(layered(8, 6, function=spin)).trace, tmp_path / "layered.json")
    agree(traced(layered(8, 6)).trace, tmp_path / "straight.json")
    agree(traced(Graph("empty")).trace, tmp_path / "empty.json")


def test_what_a_run_went_to_adds_up_also_where_clocks_disagree():
    late = made([(0, 0, 0, 100), (1, 3, 90, 150), (2, 0, 140, 200)], [(0, 1), (1, 2)])
    assert sum(seconds for _, seconds in late.report().spent) == pytest.approx(200e-9)
    backwards = made([(0, 0, 50, 100), (1, 3, 10, 40)], [(0, 1)])
    assert sum(seconds for _, seconds in backwards.report().spent) == pytest.approx(100e-9)
