"""What a trace has for each item, and that recording it changes nothing."""

import sys
import threading

import numpy as np
import pandas as pd
import plait
import pytest
from plait import Graph, PlaitError, open_scheduler
from plait.scheduler.trace import UNKNOWN
from plait.testing import layered, run_serial
from trace_kit import made, spin, traced


def test_items_are_recorded_then_ready_then_enqueued_then_started_then_finished():
    for graph in (layered(6, 6), layered(6, 6, function=spin)):
        frame = traced(graph).trace.to_pandas()
        assert len(frame) == 36 and (frame.recorded_ns < 0).all()
        assert (frame.ready_ns >= 0).all() and (frame.ready_ns <= frame.enqueued_ns).all()
        assert (frame.enqueued_ns <= frame.start_ns).all() and (frame.start_ns <= frame.end_ns).all()
        assert frame.recorded_ns.nunique() == 3 and frame.start_ns.is_monotonic_increasing  # every 16th is stamped
        ends = dict(zip(frame.item, frame.end_ns, strict=True))
        assert all(ends[row.after] == row.ready_ns for row in frame.itertuples() if row.after)


def test_bytes_are_those_of_results_and_of_copies():
    g = Graph()
    b = g.buffer("b", (100,), fill=0)
    g.options(name="copy").copy(b[10:60], np.ones(50))
    g.options(name="fill").fill(b[:5], 1)
    pair = g.options(name="pair", outputs=2).call(lambda: (np.zeros(3), np.zeros(4)))
    g.options(name="one").call(np.add, pair[1], 1)
    g.options(name="none").call(len, pair[0])
    frame = traced(g).trace.to_pandas().set_index("item")
    assert frame.nbytes.to_dict() == {"copy": 400, "fill": 40, "pair": 56, "one": 32, "none": 0}
    assert set(frame.kind[["copy", "fill"]]) == {"copy"}


def test_waits_have_a_cause():
    rows = [(0, 0, 0, 50), (1, 0, 50, 60), (2, 1, 70, 80), (3, 2, 95, 99)]
    columns = made(rows, [(0, 2)], stalls=[(5, 45, 1), (10, 90, 1)]).columns()
    assert columns["waited"].tolist() == ["", "memory", "host", "memory"]
    columns = made(rows, [(0, 2)], stalls=[(80, 96, 1)]).columns()
    assert columns["waited"].tolist() == ["", "stream", "host", "host"]
    assert columns["waited_ns"].tolist() == [0, 50, 20, 95] and columns["after"].tolist() == ["", "", "i0", ""]
    assert (columns["recorded_ns"] == UNKNOWN).all()


def test_a_data_frame_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PlaitError, match=r"plait\[pandas\]"):
        made([(0, 0, 0, 1)]).to_pandas()


def test_an_empty_run_has_a_trace():
    trace = traced(Graph("empty")).trace
    assert len(trace) == 0 and len(trace.to_pandas()) == 0 and isinstance(trace.to_pandas(), pd.DataFrame)
    assert trace.report().items == 0 and trace.report().critical_path == ()
    assert trace.report().advice == ()


def test_tracing_changes_no_result():
    for function in (None, spin):
        graph = layered(10, 10) if function is None else layered(10, 10, function=function)
        assert plait.run(graph, scheduler={"trace": True}) == plait.run(graph, scheduler={"trace": False})
        assert plait.run(graph) == run_serial(graph)


async def test_a_straight_run_that_other_streams_take_over_keeps_every_stamp_once():
    entered, release = threading.Event(), threading.Event()
    g = Graph()

    def block():
        entered.set()
        assert release.wait(10)

    def let_go():
        assert entered.wait(10)
        release.set()

    for _ in range(5):
        g.call(abs, 1)
    g.options(name="block").call(block)
    g.options(name="let go").call(let_go)  # needs another stream than the one that is in ``block``
    for _ in range(20):
        g.call(abs, 1)
    async with open_scheduler(devices="host", streams=2) as scheduler:
        run = scheduler.start(g)
        await run
    records = run.trace.records
    assert sorted(records["item"].tolist()) == list(range(27)) and (records["start_ns"] <= records["end_ns"]).all()
    span = {run.trace.names[row["item"]]: row for row in records}
    assert span["block"]["stream"] != span["let go"]["stream"]
    assert span["block"]["start_ns"] < span["let go"]["end_ns"] <= span["block"]["end_ns"]


def test_items_that_fail_have_a_record_and_what_is_behind_them_has_none():
    g = Graph()
    g.options(name="behind").call(abs, g.options(name="bad").call(int, "x"))
    g.options(name="other").call(abs, 1)
    ended = []
    plait.run(g, watch=ended.append, on_error="isolate")
    names = [ended[0].trace.names[item] for item in ended[0].trace.records["item"]]
    assert sorted(names) == ["bad", "other"] and ended[0].report().critical_path in (("bad",), ("other",))
