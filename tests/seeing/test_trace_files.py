"""Saved traces: the format that viewers read, the data that plait reads back, and the command that does."""

import json
from dataclasses import fields

import numpy as np
import plait
import pytest
import trio
from chrome_format import check
from hypothesis import given, settings
from plait import Graph, PlaitError, Trace
from plait.cli.main import main
from trace_kit import made, spin, traced, traces


def same(first, second):
    for field in fields(Trace):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype and (one == other).all()
        elif field.name == "edges":
            assert all((getattr(one, name) == getattr(other, name)).all() for name in ("source", "target", "kinds"))
        else:
            assert one == other, field.name


def two_streams():
    """A copy in, two computations side by side, one that needs both."""
    g = Graph("two")
    x, b = g.input("x", (256,)), g.buffer("b", (256,))
    g.options(name="in").copy(b, x)
    left, right = (g.options(name=name).call(spin, b) for name in ("left", "right"))
    g.output("sum", g.options(name="both").call(lambda *each: sum(each), left, right))
    return g


@settings(deadline=None, max_examples=100)
@given(trace=traces())
def test_any_trace_is_read_back_and_keeps_the_formats_rules(trace, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.json"
    trace.save(path)
    same(trace, Trace.load(path))
    check(path)


def test_a_real_run_is_read_back_with_where_it_was_recorded(tmp_path):
    run = traced(two_streams(), inputs={"x": np.ones(256)})
    run.trace.save(tmp_path / "run.json")
    loaded = Trace.load(tmp_path / "run.json")
    same(run.trace, loaded)
    assert loaded.report() == run.report()
    assert all(site.startswith(__file__) for site in loaded.sites) and loaded.graph == "two"


def test_arrows_join_waits_between_streams_and_counters_follow_memory_and_queues(tmp_path):
    trace = made([(0, 2, 0, 40), (1, 0, 50, 90), (2, 1, 60, 70), (3, 0, 95, 99)], [(0, 1), (0, 2), (1, 3), (2, 3)])
    path = tmp_path / "t.json"
    trace.save(path)
    events = check(path)
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    arrows = [(event["cat"], names[event["pid"], event["tid"]], event["ts"]) for event in events if event["ph"] in "sf"]
    assert arrows == [
        *(("copy", "host/copy:0", 0.039), ("copy", "host/compute:0", 0.05)),
        *(("copy", "host/copy:0", 0.039), ("copy", "host/compute:1", 0.06)),
        *(("wait", "host/compute:1", 0.069), ("wait", "host/compute:0", 0.095)),
    ]
    depth = [(event["ts"], event["args"]["items"]) for event in events if event["name"] == "queue of host/compute"]
    assert depth == [(0.04, 2), (0.05, 1), (0.06, 0), (0.09, 1), (0.095, 0)]
    made([(0, 0, 0, 9)], held=[(0, 8, 100), (2, 4, 50)]).save(path)
    levels = [(event["ts"], event["args"]["bytes"]) for event in check(path) if event["name"] == "memory held"]
    assert levels == [(0, 100), (0.002, 150), (0.004, 100), (0.008, 0)]


async def test_items_of_the_loop_overlap_and_get_lanes_of_their_own(tmp_path):
    g = Graph("async")
    meet = [trio.Event(), trio.Event()]

    async def met(mine, other):
        meet[mine].set()
        await meet[other].wait()

    g.call(met, 0, 1)
    g.call(met, 1, 0)
    async with plait.open_scheduler(devices="host", streams=1) as scheduler:
        run = scheduler.start(g)
        await run
    run.trace.save(tmp_path / "t.json")
    events = check(tmp_path / "t.json")
    lanes = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert "loop" in lanes and "loop (2)" in lanes


def test_stalls_are_drawn_and_kept(tmp_path):
    trace = made([(0, 0, 0, 50), (1, 1, 50, 60)], stalls=[(10, 30, 1000), (20, 50, 500)])
    trace.save(tmp_path / "t.json")
    assert Trace.load(tmp_path / "t.json").stalls == trace.stalls
    (drawn,) = (event for event in check(tmp_path / "t.json") if event.get("cat") == "stall")
    assert (drawn["ts"], drawn["dur"], drawn["args"]["bytes"]) == (0.01, 0.04, 1000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot read the trace"),
        ('{"traceEvents": []}', "is no trace of plait"),
        ("[]", "is no trace of plait"),
        ('{"plait": {"version": 0}}', "version 0"),
        ('{"plait": {"version": 1}}', "broken trace: KeyError"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_words(tmp_path, text, says):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(PlaitError, match=says):
        Trace.load(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("records", "item"), [7, 0]),
        (("records", "stream"), [0, -1]),
        (("records", "start_ns"), ["soon", "later"]),
        (("records", "end_ns"), [1]),
        (("edges", "source"), [9]),
        (("names",), None),
        (("sites",), {"known": [], "of": [3]}),
        (("limits",), [{"name": "g"}]),
        (("stalls",), [[1, 2]]),
        (("makespan_ns",), "long"),
    ],
)
def test_a_damaged_trace_is_refused(tmp_path, path, value):
    file = tmp_path / "t.json"
    made([(0, 0, 0, 5), (1, 0, 5, 9)], [(0, 1)]).save(file)
    document = json.loads(file.read_text())
    at = document["plait"]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    file.write_text(json.dumps(document))
    with pytest.raises(PlaitError, match="broken trace"):
        Trace.load(file)


def test_a_missing_file_is_said():
    with pytest.raises(PlaitError, match="cannot read the trace 'nowhere"):
        Trace.load("nowhere.json")


def test_plait_trace_prints_a_report_later_and_compares_two(tmp_path, capsys):
    first, second = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    trace = made([(0, 0, 0, 50_000_000), (1, 0, 50_000_000, 80_000_000)], [(0, 1)])
    trace.save(first)
    made([(0, 0, 0, 50_000_000), (1, 0, 50_000_000, 200_000_000)], [(0, 1)]).save(second)
    assert main(["trace", first]) == 0
    out = capsys.readouterr().out
    assert str(trace.report()) in out and "▕" in out
    assert main(["trace", first, second]) == 0
    out = capsys.readouterr().out
    assert "80 ms before, 200 ms after: 2.5x slower" in out and "dependencies: +120 ms (80 ms -> 200 ms)" in out
    assert "i1: +120 ms" in out and "i0" not in out
    assert main(["trace", first, second, first]) == 1
    assert "one file, or two to compare, not 3" in capsys.readouterr().err
