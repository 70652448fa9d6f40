"""Plans and finished runs as pictures: timeline, what took longest, the graph by state."""

import itertools
import threading
import xml.etree.ElementTree as ET

import numpy as np
import plait
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from plait.cli.main import main
from plait.scheduler import Trace
from plait.scheduler.bars import MOST_ROWS, build_lanes
from plait.scheduler.trace import RECORD

SVG = "{http://www.w3.org/2000/svg}"


def run_of(g, **inputs):
    ended = []
    outputs = plait.run(g, inputs, scheduler={"streams": 2}, watch=ended.append)
    assert outputs.run is ended[0]
    return ended[0]


def elements(svg, name):
    return [each for each in ET.fromstring(svg).iter() if name in (each.get("class") or "").split()]


def title(element):
    return element.find(f"{SVG}title").text


def program():
    g = plait.Graph("demo")
    x = g.input("x")
    store = g.buffer("store", shape=(4,), fill=0)
    g.options(name="stage").copy(store, g.options(name="double").call(np.multiply, x, 2.0))

    async def tell(value):
        await trio.lowlevel.checkpoint()
        return value

    g.output("told", g.options(name="tell").call(tell, g.options(name="sum").call(np.sum, store)))
    return g


def test_a_timeline_has_a_lane_per_stream_and_a_bar_per_item():
    run = run_of(program(), x=np.ones(4))
    svg = run.show(color="name").svg
    texts = [each.text for each in ET.fromstring(svg).iter(f"{SVG}text")]
    for part in ("compute", "copies", "async items", "loop", "critical path", "the stream waits"):
        assert part in texts
    bars = {title(bar).split("\n")[0]: title(bar) for bar in elements(svg, "plait-bar")}
    assert bars.keys() == {"double", "stage", "sum", "tell"}
    assert "ready when double ended" in bars["stage"]
    assert "on host/copy:" in bars["stage"]
    assert len(elements(svg, "plait-criticalbar")) == len(run.report().critical_path) + 1  # and one in the legend
    waits = [title(wait) for wait in elements(svg, "plait-wait")]
    assert any("stage came next and waited for double" in wait for wait in waits)


def test_copies_stand_apart_from_compute():
    svg = run_of(program(), x=np.ones(4)).show().svg
    heights = {each.text: float(each.get("y")) for each in ET.fromstring(svg).iter(f"{SVG}text")}
    below = {name.partition(":")[0]: height for name, height in heights.items() if name and name.startswith("host/")}
    assert heights["compute"] < below["host/compute"] < heights["copies"] < below["host/copy"] < heights["loop"]


def test_a_finished_run_shows_figures_what_took_longest_and_its_graph():
    run = run_of(program(), x=np.ones(4))
    html = run._repr_html_()
    for part in (
        "4 of 4 items done",
        "no schedule can beat",
        "what took longest",
        "the graph, by state",
        "peak memory",
    ):
        assert part in html
    assert html.count("<tr>") == 5
    assert run._repr_svg_() == run.show().svg


def test_ten_thousand_bars_are_joined_and_still_counted():
    g = plait.Graph("many")
    for _ in range(10_000):
        g.call(int)
    run = run_of(g)
    bars = elements(run.show().svg, "plait-bar")
    assert len(bars) <= 4000
    counts = [title(bar).split(" items in")[0] for bar in bars]
    assert sum(int(count) if count.isdecimal() else 1 for count in counts) == 10_000


@given(st.data())
def test_bars_count_every_item_once_and_share_no_place(data):
    records = np.zeros(data.draw(st.integers(1, 60)), RECORD)
    records["item"] = np.arange(len(records))
    for record in records:
        record["stream"] = data.draw(st.integers(0, 2))
        record["start_ns"] = data.draw(st.integers(0, 10_000))
        record["end_ns"] = record["start_ns"] + data.draw(st.integers(0, 3000))
    records = records[np.argsort(records["start_ns"], kind="stable")]
    names = tuple(f"item {index}" for index in range(len(records)))
    trace = Trace(records, ("host/compute:0", "host/copy:0", "loop"), "host", names, 13_000)
    lanes = build_lanes(trace, [name[-1] for name in names], width=100)
    bars = [bar for lane in lanes for bar in lane.bars]
    assert sum(bar.count for bar in bars) == len(records)
    for lane in lanes:
        mine = records[records["stream"] == trace.streams.index(lane.name)]
        assert {bar.first for bar in lane.bars} | {bar.item for bar in lane.bars} <= set(mine["item"].tolist())
        covered = {at for start, end in mine[["start_ns", "end_ns"]].tolist() for at in range(start, end)}
        assert lane.busy_ns == len(covered)
        for row in range(min(lane.rows, MOST_ROWS - 1)):  # the last row takes what finds no room
            inside = [bar for bar in lane.bars if bar.row == row]
            assert all(a.end <= b.start for a, b in itertools.pairwise(inside)) or lane.rows == MOST_ROWS


def test_runs_are_coloured_by_where_and_how_they_ran():
    run = run_of(program(), x=np.ones(4))
    assert "stream:" in run.show(color="stream").svg
    assert "✓ done \u00d74" in run.show(color="state").svg
    with pytest.raises(plait.GraphError, match="no such group"):
        run.show(fold=["none"])


def boom():
    raise ValueError("<b>on purpose</b>")


def test_a_failed_run_shows_what_failed_and_what_never_ran():
    g = plait.Graph("failing")
    g.options(name="after").call(abs, g.options(name="bad").call(boom))
    ended = []
    with pytest.raises(plait.RunFailed):
        plait.run(g, watch=ended.append)
    html = ended[0]._repr_html_()
    assert "1 failed; 1 skipped" in html
    assert "ValueError: &lt;b&gt;on purpose&lt;/b&gt;" in html
    assert "✕" in ended[0].show(color="state").svg


async def test_a_run_without_a_trace_or_not_ended_shows_its_graph():
    g = plait.Graph("gate")
    gate = threading.Event()
    g.options(name="held").call(gate.wait)
    async with plait.open_scheduler(devices="host", streams=1, trace=False) as scheduler:
        run = scheduler.start(g)
        svg = run.show().svg
        gate.set()
        assert "waiting" in svg or "running" in svg
        await run
        assert "for a timeline, run with trace=True" in run._repr_html_()
        assert "done \u00d71" in run.show().svg


def test_the_command_line_saves_pages(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.py").write_text("import plait\ngraph = plait.Graph('file')\ngraph.call(int)\n")
    assert main(["show", "file.py", "--save", "graph.svg"]) == 0
    assert main(["run", "file.py", "--save", "run.html"]) == 0
    assert elements((tmp_path / "graph.svg").read_text(encoding="utf-8"), "plait-box")
    assert "what took longest" in (tmp_path / "run.html").read_text(encoding="utf-8")
    assert main(["run", "file.py", "--save", "nowhere/run.html"]) == 1
    assert "there is no folder 'nowhere'" in capsys.readouterr().err
