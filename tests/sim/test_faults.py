"""Faults of simulated machines: what is slow, lost, late or failing, and what a run makes of it."""

from __future__ import annotations

from typing import Any

import plait
import pytest
import trio
from plait.devices.sim import FailedItem, LateCompletion, LostDevice, PlantedError, SlowDevice
from trio.testing import MockClock


def chains(count: int = 4, length: int = 5) -> plait.Graph:
    """On each device a chain of items of 1 ms, with an output at its end."""
    graph = plait.Graph("chains")
    for k in range(count):
        value = None
        for step in range(length):
            on = graph.options(device=f"cuda:{k}", cost=1e-3, nbytes=8, name=f"{k}.{step}")
            value = on.call(int) if value is None else on.call(int, value)
        graph.output(f"end{k}", value)
    return graph


def run_with(faults: Any, graph: plait.Graph | None = None, **options: Any) -> Any:
    async def main() -> Any:
        machine = plait.machine("8xh100", faults=faults, dry=True)
        async with plait.open_scheduler(devices=machine, **options) as scheduler:
            run = scheduler.start(graph or chains())
            try:
                await run
            except plait.RunFailed as failure:
                return run, failure
            return run, None

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def seconds(run: Any) -> float:
    return float(run.trace.makespan_ns) / 1e9


def test_a_slow_device_takes_longer_while_it_is_slow() -> None:
    usual = seconds(run_with([])[0])
    assert seconds(run_with([SlowDevice("cuda:1", 3.0)])[0]) == pytest.approx(usual + 10e-3, abs=20e-6)
    some = SlowDevice("cuda:1", 3.0, from_s=1.5e-3, until_s=2.5e-3)  # one item starts then
    assert seconds(run_with([some])[0]) == pytest.approx(usual + 2e-3, abs=20e-6)


def test_a_lost_device_fails_what_is_there_and_nothing_else() -> None:
    run, failure = run_with([LostDevice("cuda:2", 2.5e-3)], on_error="isolate")
    assert failure is None
    outputs = run._outputs
    assert sorted(outputs) == ["end0", "end1", "end3"]
    assert outputs.missing == ("end2",)
    assert {error.item.split(".")[0] for error in outputs.failed} == {"2"}
    assert all(isinstance(error.__cause__, plait.DeviceLost) for error in outputs.failed)


def test_a_lost_device_ends_a_run_that_stops_on_errors() -> None:
    _, failure = run_with([LostDevice("cuda:2", 2.5e-3)])
    assert "cuda:2" in str(failure.exceptions[0])
    assert "lost" in str(failure.exceptions[0])


def test_late_completions_delay_what_the_host_hears_and_no_device() -> None:
    usual = run_with([])[0]
    late = run_with([LateCompletion("cuda:0", 50e-3)])[0]
    assert seconds(late) > seconds(usual) + 40e-3
    ends = {name: record["end_ns"] for name, record in named(late).items()}
    assert ends["0.4"] == named(usual)["0.4"]["end_ns"]


def named(run: Any) -> dict[str, Any]:
    return {run.trace.names[record["item"]]: record for record in run.trace.records}


def test_a_failed_item_fails_after_its_time_and_what_needs_it_is_skipped() -> None:
    run, failure = run_with([FailedItem("1.2")], on_error="isolate")
    assert failure is None
    (error,) = run._outputs.failed
    assert error.item == "1.2"
    assert isinstance(error.__cause__, PlantedError)
    assert run._outputs.missing == ("end1",)
    assert run.progress.skipped == 3  # two items and the copy out


def test_a_failed_item_is_tried_again() -> None:
    graph = plait.Graph("retry")
    graph.output("y", graph.options(cost=1e-3, retries=3, name="rude").call(int))
    run, failure = run_with([FailedItem("rude", times=2)], graph)
    assert failure is None
    assert seconds(run) == pytest.approx(3e-3, abs=20e-6)
    run, failure = run_with([FailedItem("rude")], graph)
    assert failure is not None
    assert seconds(run) == pytest.approx(4e-3, abs=50e-6)


def test_a_fault_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(plait.DeviceError, match="cuda:9"):
        run_with([SlowDevice("cuda:9", 2)])
