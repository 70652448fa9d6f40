"""A run while it goes on: in a notebook, and as progress on a terminal."""

import io

import numpy as np
import plait
import pytest
import trio
from plait.cli.main import main
from plait.scheduler import Progress
from plait.scheduler.terminal import LineDisplay, progress_line, terminal_display
from plait.scheduler.watch import NotebookDisplay, Snapshot, find_display, take_snapshot


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
