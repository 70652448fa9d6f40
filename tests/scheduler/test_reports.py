"""What a run says of itself, from traces with known times."""

import json

import numpy as np
import plait
import pytest
import trio
from plait import Graph, PlaitError, open_scheduler
from plait.scheduler import Trace, timeline
from plait.scheduler.trace import RECORD
from plait.testing import layered


def traced(graph, streams=2, **inputs):
    async def main():
        async with open_scheduler(streams=streams) as scheduler:
            run = scheduler.start(graph, **inputs)
            await run
            return run

    return trio.run(main)


def test_records_of_a_run_respect_the_graph_and_never_overlap_on_a_stream():
    for streams in (1, 3):
        g = layered(20, 20, function=lambda *_: sum(range(300)))
        run = traced(g, streams)
        records = run.trace.records
        assert sorted(records["item"]) == list(range(400)) and len(run.trace) == 400
        start = dict(zip(records["item"].tolist(), records["start_ns"].tolist(), strict=True))
        end = dict(zip(records["item"].tolist(), records["end_ns"].tolist(), strict=True))
        edges = g.program().edges
        assert all(end[s] <= start[t] for s, t in zip(edges.source.tolist(), edges.target.tolist(), strict=True))
        for stream in set(records["stream"].tolist()):
            mine = records[records["stream"] == stream]
            assert (mine["end_ns"][:-1] <= mine["start_ns"][1:]).all()


def test_the_report_adds_up():
    g = Graph()
    parts = [g.options(name=f"part{k}").call(np.ones, 1000) for k in range(4)]
    g.output("sum", g.options(name="sum").call(lambda *arrays: float(sum(map(np.sum, arrays))), *parts))
    run = traced(g, 1)
    report = run.report()
    assert report.items == 5
    assert report.peak_bytes == 4 * 8000
    assert report.critical_path[-1] == "sum" and len(report.critical_path) == 2
    assert report.critical_path_s <= report.bound_s <= report.makespan_s
    assert sum(use.items for use in report.streams) == 5
    assert report.copies_hidden is None
    assert "5 items in" in str(report)
    assert report.over_bound == report.makespan_s / report.bound_s >= 1
    assert f"{report.over_bound:.2f} times the bound of" in str(report)


def test_peak_counts_what_is_held_at_once():
    g = Graph()
    chain = g.call(np.zeros, 1000)
    for _ in range(5):
        chain = g.call(np.negative, chain)
    g.output("end", chain)
    assert traced(g, 1).report().peak_bytes == 2 * 8000
    own = Graph()
    acc = own.buffer("acc", (1000,), fill=0)
    own.output("acc", acc)
    own.fill(acc[:10], 1)
    assert traced(own, 1).report().peak_bytes == 8000


def test_no_trace_says_how_to_get_one():
    async def main():
        async with open_scheduler(streams=1, trace=False) as scheduler:
            run = scheduler.start(layered(2, 3))
            await run
            with pytest.raises(PlaitError, match="trace=True"):
                _ = run.trace
        async with open_scheduler(streams=1) as scheduler:
            run = scheduler.start(layered(2, 3))
            with pytest.raises(PlaitError, match="await the run first"):
                _ = run.trace
            await run

    trio.run(main)


def test_the_chrome_trace_has_a_lane_per_stream_and_microseconds(tmp_path):
    run = traced(layered(3, 3))
    run.trace.save(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    lanes = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert lanes == list(run.trace.streams)
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 9 and all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans)
    assert max(span["ts"] + span["dur"] for span in spans) <= run.trace.makespan_ns / 1000


def test_a_timeline_is_as_dark_as_the_stream_was_busy():
    records = np.array([(0, 0, 0, 0, 50), (1, 1, 0, 50, 75)], dtype=RECORD)
    trace = Trace(records, ("a", "b", "idle"), "host", ("x", "y"), 100)
    assert timeline(trace, width=4) == f"{'a':<15} ▕██  ▏\n{'b':<15} ▕  █ ▏"
    assert "▕▒▏" in timeline(trace, width=1)


def test_outputs_of_slices_do_not_hold_the_whole():
    g = Graph()
    g.output("corner", g.call(np.zeros, (1000, 1000))[0:2, 0:2])
    corner = plait.run(g)["corner"]
    assert corner.shape == (2, 2) and corner.base is None
