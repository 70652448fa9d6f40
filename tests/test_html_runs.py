"""Runs as pictures, live and finished, and progress on a terminal."""

import io
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
from plait.scheduler import Progress, Trace
from plait.scheduler.bars import MOST_ROWS, build_lanes
from plait.scheduler.terminal import LineDisplay, progress_line, terminal_display
from plait.scheduler.trace import RECORD
from plait.scheduler.watch import NotebookDisplay, Snapshot, find_display, take_snapshot

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


class Kept:
    """A display that keeps what it was shown."""

    def __init__(self):
        self.shown, self.finished, self.seen = [], [], trio.Event()

    def update(self, run, snapshot):
        self.shown.append(snapshot)
        self.seen.set()

    def finish(self, run, snapshot):
        assert run.done
        self.finished.append(snapshot)


async def test_watching_shows_a_run_until_it_has_ended(autojump_clock):
    g = plait.Graph("waits")
    opened = trio.Event()

    async def held(value):
        await opened.wait()
        return value

    g.call(int, g.call(held, 1))
    kept = Kept()
    async with plait.open_scheduler(devices="host", streams=1) as scheduler:
        run = scheduler.start(g)
        run.watch(kept)
        await kept.seen.wait()
        opened.set()
        await run
    assert kept.shown[0].progress.done == 0
    assert kept.shown[0].left_s is None
    assert [snapshot.progress.done for snapshot in kept.finished] == [2]


async def test_a_cancelled_run_is_shown_to_its_end(autojump_clock):
    g = plait.Graph("waits")
    g.call(trio.sleep_forever)
    kept = Kept()
    with trio.move_on_after(5):
        async with plait.open_scheduler(devices="host", streams=1) as scheduler:
            scheduler.start(g).watch(kept)
            await trio.sleep_forever()
    assert len(kept.finished) == 1


async def test_a_snapshot_counts_what_is_done_and_what_is_held(autojump_clock):
    g = plait.Graph("held")
    opened = trio.Event()

    async def wait(value):
        await opened.wait()

    g.call(wait, g.options(cost=1.0).call(np.ones, 1000))
    async with plait.open_scheduler(devices="host", streams=1) as scheduler:
        run = scheduler.start(g)
        while run.progress.done < 1:
            await trio.sleep(0.01)
        snapshot = take_snapshot(run, began=0.0)
        opened.set()
        await run
    assert snapshot.progress.done == 1
    assert snapshot.held_bytes >= 8000
    assert snapshot.left_s == pytest.approx(snapshot.elapsed_s)
    assert snapshot.words()[0] == "1/2"


class Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, bundle, raw):
        self.shown.append(bundle)


async def test_a_notebook_shows_one_output_that_ends_as_the_run():
    shown = []

    def publish(bundle, raw, display_id):
        assert raw
        assert display_id
        shown.append(bundle)
        return Handle(shown)

    g = plait.Graph("live")
    g.options(name="item").call(int)
    display = NotebookDisplay(publish)
    async with plait.open_scheduler(devices="host", streams=1) as scheduler:
        run = scheduler.start(g)
        await run
        early, late = (Snapshot("live", run.progress, elapsed, 1.0, 1.0, 0) for elapsed in (0.5, 60.0))
        display.update(run, early)
        display.update(run, late)
        display.finish(run, late)
    bar, picture, end = (bundle["text/html"] for bundle in shown)
    assert "plait-progressed" in bar
    assert "<svg" not in bar
    assert "<svg" in picture
    assert "✓ done \u00d71" in picture
    assert "<script" not in picture
    assert end == run._repr_html_()


SNAPSHOT = Snapshot("demo", Progress(4, 1, 1, 1, 0), 2.0, 0.5, 4.0, 2048)


def test_a_progress_line_says_how_far_and_how_long():
    line = progress_line(SNAPSHOT, "utf-8")
    for part in ("demo", "50%", "1/4", "1 failed", "0.5 items/s", "4 s left", "2 KiB", "████████████ "):
        assert part in line
    assert "[############            ]" in progress_line(SNAPSHOT, "ascii")
    assert "[####" in progress_line(SNAPSHOT, "no-such-encoding")


def test_a_terminal_line_is_written_over_and_cleared():
    stream = io.StringIO()
    display = LineDisplay(stream)
    display.update(None, SNAPSHOT)
    display.finish(None, SNAPSHOT)
    assert stream.getvalue().startswith("\rdemo")
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "\n" not in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_rich_draws_the_bar_where_it_is_installed(monkeypatch):
    pytest.importorskip("rich", reason="the extra 'progress' is not installed")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    display = terminal_display(stream)
    assert type(display).__name__ == "RichDisplay"
    display.update(None, SNAPSHOT)
    display.finish(None, SNAPSHOT)
    assert "demo" in stream.getvalue()
    assert "0.5 items/s" in stream.getvalue()


def test_the_command_line_saves_pages(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.py").write_text("import plait\ngraph = plait.Graph('file')\ngraph.call(int)\n")
    assert main(["show", "file.py", "--save", "graph.svg"]) == 0
    assert main(["run", "file.py", "--save", "run.html"]) == 0
    assert elements((tmp_path / "graph.svg").read_text(encoding="utf-8"), "plait-box")
    assert "what took longest" in (tmp_path / "run.html").read_text(encoding="utf-8")
    assert main(["run", "file.py", "--save", "nowhere/run.html"]) == 1
    assert "there is no folder 'nowhere'" in capsys.readouterr().err


async def test_a_snapshot_tells_of_a_memory_limit(autojump_clock):
    g = plait.Graph("limited")
    opened = trio.Event()

    async def wait(value):
        await opened.wait()

    g.call(wait, g.call(np.ones, 1000))
    async with plait.open_scheduler(devices="host", streams=1, memory_limit=2**20) as scheduler:
        run = scheduler.start(g)
        while run.progress.done < 1:
            await trio.sleep(0.01)
        snapshot = take_snapshot(run, began=0.0)
        opened.set()
        await run
    assert snapshot.held_bytes == 8000
    assert snapshot.words()[-1] == "7.81 KiB of 1 MiB"


def test_only_a_terminal_or_a_notebook_gets_progress(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert find_display() is None
    monkeypatch.setattr("sys.stderr", Terminal())
    assert find_display() is not None
    (tmp_path / "file.py").write_text("import plait\ngraph = plait.Graph('file')\ngraph.call(int)\n")
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert main(["run", str(tmp_path / "file.py")]) == 0
    assert "\r" not in capsys.readouterr().out
