"""Runs on simulated machines: right values, the same trace every time, time that follows from the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plait
import pytest
import trio
from plait.testing import check_plan, random_program, run_serial
from trio.testing import MockClock


def simulate(
    machine: Any, graph: plait.Graph, /, *, streams: int = 4, policy: str = "critical-path", **inputs: Any
) -> Any:
    """The outputs and the run, in virtual time."""

    async def main() -> Any:
        async with plait.open_scheduler(devices=machine, streams=streams, policy=policy) as scheduler:
            run = scheduler.start(graph, inputs)
            return await run, run

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def nothing(*_: object) -> None:
    """Stands for work that is not called."""


def pipeline() -> plait.Graph:
    graph = plait.Graph("pipeline")
    x = graph.input("x", shape=(1000, 1000), dtype="float32")
    ends = []
    for k in range(4):
        with graph.defaults(device=f"cuda:{k}", cost={"cuda": 1e-3}, nbytes=4_000_000):
            ends.append(graph.call(nothing, graph.call(nothing, x)))
    graph.output("y", graph.options(device="cuda:0", cost=2e-3, nbytes=8).call(nothing, *ends))
    return graph


def test_a_dry_run_needs_no_arrays_and_ends_when_the_machine_says() -> None:
    outputs, run = simulate(plait.machine("8xh100", dry=True), pipeline())
    assert outputs["y"].nbytes == 8
    # x goes to each device at once over links of their own, 4 MB at 64 GB/s; three of the results to cuda:0, whose
    # NVLink port takes two at a time, and the outputs back; the rest is launches and latencies.
    least = 4e6 / 64e9 + 2 * 1e-3 + 2 * 4e6 / 450e9 + 2e-3
    assert least < run.trace.makespan_ns / 1e9 < least + 200e-6


def test_trio_time_goes_with_virtual_time() -> None:
    async def main() -> None:
        async with plait.open_scheduler(devices=plait.machine("8xh100", dry=True)) as scheduler:
            began = trio.current_time()
            run = scheduler.start(pipeline())
            await run
            assert trio.current_time() - began == pytest.approx(run.trace.makespan_ns / 1e9, abs=1e-9)

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_the_same_trace_byte_for_byte(tmp_path: Path) -> None:
    traces = []
    for number in range(3):
        _, run = simulate(plait.machine("8xh100", dry=True, noise=0.2, seed=7), pipeline())
        run.trace.save(tmp_path / f"{number}.json")
        traces.append((tmp_path / f"{number}.json").read_bytes())
    assert traces[0] == traces[1] == traces[2]
    assert len(json.loads(traces[0])["traceEvents"]) > 15
    _, other = simulate(plait.machine("8xh100", dry=True, noise=0.2, seed=8), pipeline())
    assert other.trace.makespan_ns != run.trace.makespan_ns


@pytest.mark.parametrize("seed", range(40))
def test_values_are_those_of_the_serial_program(seed: int) -> None:
    devices = [None, "cuda:0", "cuda:1", "cuda:2", "gpu"]
    program = random_program(seed, 40, devices)
    outputs, run = simulate(plait.machine("8xh100", noise=0.3, seed=seed), program.graph, streams=3, **program.inputs)
    check_plan(run.plan)
    for name, expected in run_serial(program.graph, **program.inputs).items():
        assert np.array_equal(outputs[name], expected), name
