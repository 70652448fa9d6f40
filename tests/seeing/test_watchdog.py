"""A run that makes no progress says what it waits for, and why names what holds an item up."""

import logging
import threading

import numpy as np
import plait
import pytest
import trio
from plait import Graph, PlanError, open_scheduler
from plait.scheduler.seeing.watchdog import tell

STALL = 8.0


class Gate:
    """Something for an item to be stuck in."""

    def __init__(self):
        self.entered, self.release = threading.Event(), threading.Event()

    def __call__(self, *_):
        self.entered.set()
        assert self.release.wait(20)
        return 1

    async def wait_entered(self):
        assert await trio.to_thread.run_sync(self.entered.wait, 20)


@pytest.fixture
def gates():
    """Gates that a failed test leaves open."""
    made = [Gate(), Gate()]
    yield made
    for gate in made:
        gate.release.set()


async def pass_time(clock, seconds=STALL):
    """Let the watchdog look as often as it would in so many seconds."""
    for _ in range(4):
        clock.jump(seconds / 4)
        await trio.testing.wait_all_tasks_blocked()


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_hang_is_told_once_with_what_waits_for_what(mock_clock, caplog, gates):
    gate, _ = gates
    g = Graph("hang")
    with g.group("disk", limit=1):
        stuck = g.options(name="stuck").call(gate)
        g.options(name="limited").call(abs, 1)
    g.options(name="next").call(abs, stuck)
    g.options(name="last").call(abs, g.options(name="middle").call(abs, stuck))
    async with open_scheduler(devices="host", streams=1, stall_after=STALL) as scheduler:
        run = scheduler.start(g)
        await gate.wait_entered()
        await pass_time(mock_clock, STALL / 2)
        assert not warnings(caplog)
        await pass_time(mock_clock)
        (message,) = warnings(caplog)
        assert message.startswith("run of graph 'hang' has made no progress for 8 s: 0 of 5 items have ended\n")
        assert "'stuck' is running on host/compute:0 since" in message
        assert "'limited' is ready and waits for " in message
        assert "3 more wait for these" in message and "wait for each other" not in message
        await pass_time(mock_clock, 5 * STALL)
        assert len(warnings(caplog)) == 1
        gate.release.set()
        await run


async def test_progress_keeps_the_watchdog_silent(mock_clock, caplog, gates):
    g = Graph("slow but sure")
    value = 1
    for gate in gates:
        value = g.call(gate, value)
    async with open_scheduler(devices="host", streams=1, stall_after=STALL) as scheduler:
        run = scheduler.start(g)
        for gate in gates:
            await gate.wait_entered()
            await pass_time(mock_clock, 0.7 * STALL)
            gate.release.set()
        await run
    assert not warnings(caplog)


async def test_what_is_drained_after_a_cancel_is_watched_too(mock_clock, caplog, gates):
    gate, _ = gates
    g = Graph("stubborn")
    g.options(name="deaf").call(gate)
    async with open_scheduler(devices="host", streams=1, stall_after=STALL) as scheduler:
        run = scheduler.start(g)
        await gate.wait_entered()
        run.cancel()
        await pass_time(mock_clock, 2 * STALL)
        (message,) = warnings(caplog)
        assert "it is stopping: the run was cancelled" in message and "'deaf' is running" in message
        gate.release.set()


async def test_runs_that_wait_for_each_others_stream_are_named_as_a_cycle(mock_clock, caplog):
    inner, outer = Graph("inner"), Graph("outer")
    inner.output("one", inner.options(name="small").call(abs, -1))
    token, entered = trio.lowlevel.current_trio_token(), threading.Event()
    started, opened = [], []

    async def start_inner():
        started.append(opened[0].start(inner))
        entered.set()
        return await started[0]

    def run_inner():  # holds the only stream, and waits for a run that needs it
        try:
            return trio.from_thread.run(start_inner, trio_token=token)
        except plait.RunFailed:
            return None

    outer.options(name="big").call(run_inner)
    async with open_scheduler(devices="host", streams=1, stall_after=STALL) as scheduler:
        opened.append(scheduler)
        run = scheduler.start(outer)
        await trio.to_thread.run_sync(entered.wait, 20)
        await pass_time(mock_clock, 2 * STALL)
        of_inner = next(text for text in warnings(caplog) if text.startswith("run of graph 'inner'"))
        of_outer = next(text for text in warnings(caplog) if text.startswith("run of graph 'outer'"))
        assert "'small' is ready and waits for" in of_inner and "behind 'big' of graph 'outer'" in of_inner
        assert "'big' is running" in of_outer and "it started the run of graph 'inner'" in of_outer
        for message in (of_inner, of_outer):
            ring = message.splitlines()[-1]
            assert "these wait for each other: " in ring
            assert "'big' of graph 'outer' (compute)" in ring and "'small' of graph 'inner' (compute)" in ring
        started[0].cancel()
        await run


async def test_an_async_item_is_named(mock_clock, caplog):
    g, never = Graph("async"), trio.Event()
    g.options(name="fetch").call(never.wait)
    async with open_scheduler(devices="host", streams=1, stall_after=STALL) as scheduler:
        run = scheduler.start(g)
        await trio.testing.wait_all_tasks_blocked()
        while run.progress.running == 0:
            await trio.lowlevel.checkpoint()
        await pass_time(mock_clock, 2 * STALL)
        assert "'fetch' is running on the trio loop" in warnings(caplog)[0]
        never.set()
        await run


async def test_memory_that_is_leased_is_named(mock_clock, caplog):
    g = Graph("large")
    g.output("least", g.options(name="least").call(np.min, g.options(name="ones", nbytes=8000).call(np.ones, 1000)))
    async with open_scheduler(devices="host", streams=1, memory_limit=10_000, stall_after=STALL) as scheduler:
        async with scheduler.lease("host", 5000):
            run = scheduler.start(g)
            while "memory" not in run.why("ones"):
                await trio.lowlevel.checkpoint()
            assert run.why("ones") == "'ones' is ready and waits for 7.81 KiB of memory in host (4.88 KiB leased)"
            await pass_time(mock_clock, 2 * STALL)
            (message,) = warnings(caplog)
            assert "'ones' is ready and waits for 7.81 KiB of memory in host" in message
            assert "4.88 KiB of memory in host are leased" in message and "1 more wait for these" in message
        assert (await run)["least"] == 1


async def test_why_names_who_is_on_the_stream_and_who_has_the_room(gates):
    first, second = gates
    g = Graph("busy")
    g.options(name="on the stream").call(first)
    g.options(name="alone").call(abs, 1)
    with g.group("one at a time", limit=1):
        g.options(name="held").call(abs, 2)
    async with open_scheduler(devices="host", streams=1) as scheduler:
        run = scheduler.start(g)
        await first.wait_entered()
        why = run.why("alone")
        assert "'alone' is ready and waits for " in why and "behind 'on the stream'" in why
        first.release.set()
        await run
        assert "is done after" in run.why("held")
    limited = Graph("limited")
    with limited.group("one at a time", limit=1):
        limited.options(name="in").call(second)
        limited.options(name="out").call(abs, 1)
    async with open_scheduler(devices="host", streams=2) as scheduler:
        run = scheduler.start(limited)
        await second.wait_entered()
        while "room" not in run.why("out"):
            await trio.lowlevel.checkpoint()
        assert run.why("out") == "'out' is ready and waits for room in group 'one at a time', taken by 'in'"
        second.release.set()
        await run


async def test_why_says_which_failure_skipped_an_item_and_what_a_run_waits_for_before_it_begins():
    g = Graph("failing")
    bad = g.options(name="bad").call(int, "x")
    g.options(name="behind").call(abs, g.options(name="between").call(abs, bad))
    g.options(name="free").call(abs, 1)
    async with open_scheduler(devices="host", streams=1, on_error="isolate") as scheduler:
        run = scheduler.start(g)
        assert run.why("free") == "'free' is ready and waits for its run to begin"
        await run
        assert run.why("behind") == "'behind' is skipped: 'bad' failed, which it depends on"
        assert run.why("bad").startswith("'bad' is failed")


def test_without_a_handler_the_message_goes_to_standard_error(capsys, monkeypatch):
    monkeypatch.setattr("plait.scheduler.seeing.watchdog.is_heard", lambda: False)
    tell("nothing moves")
    assert capsys.readouterr().err == "plait: nothing moves\n"


async def test_stall_after_must_be_a_time():
    for wrong in (0, -1):
        with pytest.raises(PlanError, match="stall_after must be a positive number"):
            async with open_scheduler(stall_after=wrong):
                pass
