"""Traces of device items: known durations, the host's clock, arrows and bytes; ranges in the vendor's tools."""

import threading

import cupy
import numpy as np
import plait
import pytest
import rig
import trio
from plait import Graph, RunFailed, open_scheduler

MS = 1_000_000


def pipeline():
    g = Graph("pipeline")
    x = g.input("x", shape=(1000,), dtype="float64")
    with g.defaults(device="hip:0"):
        first = g.options(name="first").call(np.multiply, x, 2.0)
        second = g.options(name="second").call(np.add, first, 1.0)
    g.output("sum", g.options(name="sum").call(np.sum, second))
    return g


def traced(graph, **options):
    async def main():
        async with open_scheduler(devices=["host", "hip:0"], streams=2, **options) as scheduler:
            plan = scheduler.compile(graph)
            await scheduler.run(plan, x=np.ones(1000))  # compiles the kernels
            run = scheduler.start(plan, x=np.ones(1000))
            result = await run
            assert result["sum"] == 3000
            return run

    return trio.run(main)


def rows(run):
    """The trace's columns by item."""
    columns = run.trace.columns()
    each = zip(*(column.tolist() for column in columns.values()), strict=True)
    return {row[0]: dict(zip(columns, row, strict=True)) for row in each}


def test_known_durations_are_found_and_lie_in_order_on_the_hosts_clock():
    rig.set_kernel_us(20_000)
    run = traced(pipeline())
    at = rows(run)
    for name in ("first", "second"):
        assert at[name]["end_ns"] - at[name]["start_ns"] >= 20 * MS
        assert at[name]["stream"].startswith("hip:0/compute:")
    slack = 10 * MS  # both clocks are this machine's, and a busy machine is late to look at them
    assert at["first"]["end_ns"] <= at["second"]["start_ns"] + slack
    assert at["second"]["end_ns"] <= at["sum"]["start_ns"] + slack
    assert at["second"]["start_ns"] >= at["second"]["enqueued_ns"] - slack
    assert all(at[name]["recorded_ns"] < 0 for name in ("first", "second", "sum"))
    assert at["second"]["after"] == "first" and at["sum"]["after"] != ""


def test_copies_have_their_bytes_and_the_report_its_streams():
    run = traced(pipeline())
    copies = [row for row in rows(run).values() if row["kind"] == "copy"]
    assert {row["nbytes"] for row in copies} == {8000}
    assert {row["stream"].split("/")[0] for row in copies} == {"hip:0"}
    report = run.report()
    assert report.copied_bytes == 8000 * len(copies) and len(copies) == 2
    assert sum(seconds for _, seconds in report.spent) == pytest.approx(report.makespan_s)
    for use in report.streams:
        parts = use.busy_s, use.wait_s, use.memory_s, use.limit_s, use.host_s, use.idle_s
        assert sum(parts) == pytest.approx(report.makespan_s)
    assert any("on hip:0" in name for name in run.trace.holders)


def test_a_saved_trace_has_a_process_for_the_device_and_arrows_for_its_copies(tmp_path):
    trace = traced(pipeline()).trace
    trace.save(tmp_path / "run.json")
    assert plait.Trace.load(tmp_path / "run.json").report() == trace.report()
    events = plait.scheduler.seeing.chrome.chrome_events(trace)
    processes = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    assert set(processes) == {"host", "hip:0"}
    assert {event["pid"] for event in events if event["ph"] in "sf" and event["cat"] == "copy"} == set(
        processes.values()
    )


@pytest.mark.parametrize("ranges", [False, True])
def test_items_are_ranges_of_the_vendors_tools_if_asked(monkeypatch, ranges):
    seen, depth = [], threading.local()

    def push(name, *_):
        depth.now = getattr(depth, "now", 0) + 1
        seen.append(name)

    def pop():
        depth.now -= 1
        assert depth.now >= 0

    monkeypatch.setattr(cupy.cuda.nvtx, "RangePush", push)
    monkeypatch.setattr(cupy.cuda.nvtx, "RangePop", pop)
    traced(pipeline(), ranges=ranges)
    assert ({"first", "second"} <= set(seen)) if ranges else not seen


def test_a_range_ends_with_a_failed_item(monkeypatch):
    opened = []
    monkeypatch.setattr(cupy.cuda.nvtx, "RangePush", lambda name, *_: opened.append(name))
    monkeypatch.setattr(cupy.cuda.nvtx, "RangePop", opened.pop)
    g = Graph()
    g.options(name="bad", device="hip:0").call(lambda x: x.nothing, g.input("x"))
    with pytest.raises(RunFailed) as caught:
        plait.run(g, x=np.ones(3), scheduler={"ranges": True})
    assert opened == []
    assert "item 'bad' failed" in str(caught.value) and "on hip:0, stream hip:0/compute:0" in str(caught.value)
    assert "inputs: x float64 (3,)" in str(caught.value)


def test_a_device_that_hangs_is_named_by_the_watchdog(caplog):
    g = pipeline()

    async def main():
        async with open_scheduler(devices=["host", "hip:0"], streams=1, stall_after=0.2) as scheduler:
            plan = scheduler.compile(g)
            await scheduler.run(plan, x=np.ones(1000))
            with rig.held("compute"):
                run = scheduler.start(plan, x=np.ones(1000))
                while not caplog.messages:
                    await trio.sleep(0.01)
                assert "is running: enqueued in hip:0/compute:0" in run.why("second")
            await run

    trio.run(main)
    message = caplog.messages[0]
    assert "'first' is running: enqueued in hip:0/compute:0" in message
    assert "'second' is running: enqueued in hip:0/compute:0 behind 'first'" in message
    assert "stream hip:0/compute:0: the event behind " in message and "is not reached" in message
    assert "'sum'" not in message or "waits for" in message


def test_a_captured_plan_is_traced_as_the_graphs_it_launches(tmp_path):
    async def main():
        async with open_scheduler(devices=["host", "hip:0"], streams=2) as scheduler:
            plan = scheduler.compile(pipeline()).capture()
            for _ in range(3):
                run = scheduler.start(plan, x=np.ones(1000))
                await run
            return run

    run = trio.run(main)
    report = run.report()
    assert report.items == len(run.trace) and any("first" in name for name in report.critical_path)
    assert sum(seconds for _, seconds in report.spent) == pytest.approx(report.makespan_s)
    run.trace.save(tmp_path / "run.json")
    assert plait.Trace.load(tmp_path / "run.json").report() == report
