"""Runs on simulated machines: right values, the same trace every time, time that follows from the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


def beside_each_other() -> list[tuple[str, int, int]]:
    """Two runs at once, with async items that sleep in virtual time; what ran when."""

    async def doze(*values: Any) -> float:
        await trio.sleep(0.75e-3)
        return trio.current_time()

    def build(name: str) -> plait.Graph:
        graph = plait.Graph(name)
        for k in range(6):
            first = graph.options(cost=1e-3, name=f"first{k}").call(nothing)
            slept = graph.options(name=f"doze{k}").call(doze, first)
            then = graph.options(device="cuda", cost=0.5e-3, name=f"then{k}").call(nothing, slept)
            graph.output(f"slept{k}", slept)
            graph.output(f"then{k}", then)
        return graph

    async def main() -> list[tuple[str, int, int]]:
        async with plait.open_scheduler(devices=plait.machine("8xh100"), streams=3) as scheduler:
            runs = [scheduler.start(build(name)) for name in "ab"]
            outputs = [await run for run in runs]
            assert all(value > 0 for output in outputs for name, value in output.items() if name[0] == "s")
            return [
                (f"{run.plan.program.graph.name}.{run.trace.names[record['item']]}", *map(int, list(record)[1:]))
                for run in runs
                for record in run.trace.records
            ]

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def test_async_items_and_runs_side_by_side_are_as_repeatable() -> None:
    first = beside_each_other()
    assert len(first) > 36
    for _ in range(5):  # trio runs tasks of one moment in an order of its own each time
        assert beside_each_other() == first


def test_an_async_item_takes_virtual_time() -> None:
    async def doze() -> float:
        before = trio.current_time()
        await trio.sleep(5)
        return trio.current_time() - before

    graph = plait.Graph("asleep")
    graph.output("y", graph.call(doze))
    outputs, run = simulate(plait.machine("8xh100"), graph)
    assert outputs["y"] == pytest.approx(5)
    assert run.trace.makespan_ns == pytest.approx(5e9, rel=1e-6)


def test_timeouts_are_in_virtual_time() -> None:
    graph = plait.Graph("slow")
    graph.output("y", graph.options(cost=60.0).call(nothing))

    async def main() -> float:
        async with plait.open_scheduler(devices=plait.machine("8xh100")) as scheduler:
            with pytest.raises(plait.RunFailed, match="timed out"):
                await scheduler.start(graph, timeout=10)
        return trio.current_time()

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == pytest.approx(60, abs=0.1)  # it is waited for


def test_cancelling_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with plait.open_scheduler(devices=plait.machine("8xh100", dry=True)) as scheduler:
            run = scheduler.start(pipeline())
            await trio.sleep(1e-3)
            run.cancel()
            with pytest.raises(plait.RunCancelled):
                await run
            assert scheduler.simulation is not None
            assert all(device.memory.in_use == 0 for device in scheduler.simulation.devices)
            await scheduler.run(pipeline())

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_it_keeps_pace_with_an_ordinary_clock() -> None:
    graph = plait.Graph("paced")
    graph.output("y", graph.options(cost=20e-3, device="cuda").call(nothing))

    async def main() -> float:
        began = trio.current_time()
        async with plait.open_scheduler(devices=plait.machine("8xh100")) as scheduler:
            await scheduler.run(graph)
        return trio.current_time() - began

    assert trio.run(main) >= 20e-3


HASHED = """
import sys
sys.path.insert(0, {here!r})
import dataclasses, plait
from test_simulated_runs import simulate
from plait.testing import random_program
program = random_program(5, 60, [None, "cuda:0", "cuda:1", "gpu"])
machine = dataclasses.replace(plait.machine("8xh100", noise=0.2, seed=1), calls="either")
outputs, run = simulate(machine, program.graph, **program.inputs)
run.trace.save({out!r})
"""


def test_the_same_trace_in_another_process(tmp_path: Path) -> None:
    traces = []
    for seed in ("0", "1", "77"):
        out = tmp_path / f"{seed}.json"
        code = HASHED.format(here=str(Path(__file__).parent), out=str(out))
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        traces.append(out.read_bytes())
    assert traces[0] == traces[1] == traces[2]


def test_a_simulated_device_is_no_neighbour_of_real_ones() -> None:
    async def main() -> None:
        with pytest.raises(plait.PlanError, match="simulated"):
            async with plait.open_scheduler(devices=["host", "sim:0"]):
                pass

    trio.run(main)


def test_simulated_devices_are_not_among_all() -> None:
    assert all(device.platform != "sim" for device in plait.devices())
    assert plait.device("sim:1").name == "sim:1"
