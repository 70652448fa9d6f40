"""Simulate a graph from plain code: open a scheduler on a machine, under a clock that jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio
from plait.devices.sim import Machine
from plait.graph import Graph
from plait.scheduler.opening import open_scheduler
from plait.scheduler.report import Report
from plait.scheduler.run import Outputs, Run
from plait.scheduler.simulated import SimulatedReport, simulated_report
from plait.scheduler.trace import Trace


@dataclass(frozen=True, eq=False)
class Simulated:
    """A run that was simulated: its ``outputs`` (sizes alone if it was dry), its ``trace`` and its ``report``."""

    outputs: Outputs
    run: Run
    trace: Trace
    report: SimulatedReport

    @property
    def makespan_s(self) -> float:
        """Virtual seconds from the run's begin to its end."""
        return self.trace.makespan_ns / 1e9

    def streams(self) -> Report:
        """The report that every run has, by stream."""
        return self.run.report()


def simulate(graph: Graph, machine: Machine, /, inputs: Any = None, **options: Any) -> Simulated:
    """Run ``graph`` on a simulated ``machine`` in virtual time; ``options`` go to ``open_scheduler``.

    Blocks until the run has ended, faster than real time. Raises what the run raises. From a trio task open a scheduler
    on the machine instead, under a ``trio.testing.MockClock`` or in real time.
    """

    found: list[Simulated] = []  # what trio's main task returns stays in a cycle until the collector comes

    async def main() -> None:
        async with open_scheduler(devices=machine, **options) as scheduler:
            run = scheduler.start(graph, inputs)
            outputs = await run
            assert scheduler.simulation is not None
            found.append(Simulated(outputs, run, run.trace, simulated_report(run, scheduler.simulation)))

    from trio.testing import MockClock  # noqa: PLC0415  it imports pytest where that is installed

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return found.pop()
