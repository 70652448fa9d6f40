"""Many legal orders of one graph: completions and ready queues drawn by seed, results held against the oracle's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import numpy as np
import trio
from plait.devices.sim import LateCompletion, Machine
from plait.devices.sim.clock import to_ns
from plait.errors import RunCancelled
from plait.graph import Graph
from plait.scheduler import Run, Scheduler, open_scheduler
from plait.scheduler.policies import Policy
from plait.scheduler.state import DONE
from plait.testing import watched
from plait.testing.audit import audit, beyond_limits, left_behind
from plait.testing.drawn import SPARE, drawn_inputs, drawn_limits, drawn_machine, drawn_policy, given, kept
from plait.testing.oracle import run_serial
from plait.testing.programs import RandomProgram
from plait.testing.shrink import shrunk

_TRIES = 30  # seeds that a smaller graph is given to fail with


class ExplorationFailed(AssertionError):
    """An order under which a run went wrong: ``seed``, ``reason``, and the smallest ``graph`` found that does."""

    def __init__(self, seed: int, reason: str, graph: Graph) -> None:
        items = ", ".join(item.name for item in graph.items)
        super().__init__(f"seed {seed}: {reason}; with {len(graph.items)} items: {items}")
        self.seed = seed
        self.reason = reason
        self.graph = graph


def explore(
    graph: Graph | Callable[[int], RandomProgram],
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    seeds: Iterable[int] = range(100),
    machine: Machine | None = None,
    shrink: bool = True,
) -> int:
    """Run ``graph`` once for each seed, on simulated devices, in an order that the seed draws; how many were run.

    ``graph`` may be a function from a seed to a ``RandomProgram``. Drawn are how long items and transfers take, when in
    its time each is called, how many streams and workers there are, the urgency of items and which inputs are donated;
    then, for some seeds, again with memory limits hardly above what one item needs, beside a second run of another
    priority, or cancelled on the way. ``machine`` is the one to run on (two devices of kind ``cuda`` by default, which
    some seeds make slow for a while or late to tell). Items must give the same in every legal order, as NumPy's do.

    ExplorationFailed if results differ from the serial ones or are handed over too early, an item fails, two items
    that conflict overlap, nothing moves any more, a free stream or engine leaves a more urgent item waiting, an array
    of the caller's is changed, a memory limit is not kept, or anything is still held at the end. It names the seed, and
    the smallest graph found that fails.
    """
    count = 0
    expected: dict[str, Any] | None = None
    for seed in seeds:
        program = RandomProgram(graph, dict(inputs or {}), seed) if isinstance(graph, Graph) else graph(seed)
        if expected is None or not isinstance(graph, Graph):
            expected = run_serial(program.graph, **program.inputs)
        reason = explore_one(program.graph, program.inputs, seed, expected, machine)
        if reason is not None:
            small, number = program.graph, seed
            if shrink:
                small, number, reason = _smaller(program, seed, reason, machine)
            raise ExplorationFailed(number, reason, small)
        count += 1
    return count


def explore_one(
    graph: Graph, inputs: Mapping[str, Any], seed: int, expected: Mapping[str, Any], machine: Machine | None = None
) -> str | None:
    """What went wrong under the orders of one seed, None if nothing did."""
    random = Random(seed)
    mine = given(graph, inputs)
    before = kept(mine)
    first = _Order(graph, inputs, expected, drawn_machine(random, machine), drawn_policy(random), random)
    reason = first.explored()
    if reason is None and random.random() < 0.6:
        again = _Order(graph, inputs, expected, first.machine, first.policy, random)
        if random.random() < 0.7:
            again.limits, again.streams = first.limits or None, first.streams
        again.count = random.choice((1, 2, 2))
        again.cancel_s = random.uniform(0, 1.2) * first.took_s if random.random() < 0.25 else None
        reason = again.explored()
    if reason is None:
        changed = [name for name, value in mine.items() if not np.array_equal(value, before[name])]
        reason = f"{changed[0]!r}, an array of the caller's, was changed" if changed else None
    return reason


class _Order:
    """One order: a scheduler on a drawn machine, and a run on it or two side by side."""

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Any],
        expected: Mapping[str, Any],
        machine: Machine,
        policy: Policy,
        random: Random,
    ) -> None:
        self.graph = graph
        self.inputs = inputs
        self.expected = expected
        self.machine = machine
        self.policy = policy
        self.random = random
        self.streams = random.randint(1, 4)
        self.count = 1
        self.limits: dict[str, int] | None = None  # to run under; afterwards, those that the run was measured for
        self.cancel_s: float | None = None
        self.took_s = 0.0
        self.reason: str | None = None

    def explored(self) -> str | None:
        """Run it; what went wrong, None if nothing did."""
        from trio.testing import MockClock  # noqa: PLC0415  it imports pytest where that is installed

        try:
            with watched.bounded(watched.BUSY_S, self._say):
                trio.run(self._main, clock=MockClock(autojump_threshold=0))
        except Exception as error:  # whatever a broken scheduler raises out of its nursery
            self._say(f"{type(error).__name__}: {_first(error)}")
        return self.reason

    def _say(self, reason: str | None) -> None:
        self.reason = self.reason or reason

    async def _main(self) -> None:
        runs: list[Run] = []
        scope = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            try:
                async with open_scheduler(
                    devices=self.machine, streams=self.streams, policy=self.policy, memory_limit=self.limits
                ) as scheduler:
                    nursery.start_soon(watched.end_if_still, scheduler, runs, self._say, scope)
                    await self._runs(scheduler, runs)
                self._say(left_behind(scheduler))
            finally:
                scope.cancel()

    async def _runs(self, scheduler: Scheduler, runs: list[Run]) -> None:
        priorities = [self.random.randint(-1, 1) for _ in range(self.count)]
        for priority in priorities:
            inputs = drawn_inputs(self.random, self.inputs)
            runs.append(scheduler.start(self.graph, inputs, priority=priority))
        early = [name for name in self.expected if self.random.random() < 0.3]
        async with trio.open_nursery() as nursery:
            for run in runs:
                for name in (None, *early):
                    nursery.start_soon(self._watched, run, name)
            if self.cancel_s is not None:
                await trio.sleep(self.cancel_s)
                runs[0].cancel()
        if self.reason is None and self.cancel_s is None:
            self.took_s = runs[0].trace.makespan_ns / 1e9
            late = [0, *(self._late_ns(device.name) for device in self.machine.devices)]
            limited = self.limits is not None
            self._say(audit(runs, late, limited=limited))
            if not limited:
                self.limits = drawn_limits(self.random, runs[0])
        if self.limits is not None and self.reason is None:
            self._say(beyond_limits(scheduler, self.count * SPARE))
        runs[:] = [run for run in runs if not run.done]

    def _late_ns(self, device: str) -> int:
        faults = self.machine.faults
        return sum(to_ns(each.by_s) for each in faults if isinstance(each, LateCompletion) and each.device == device)

    async def _watched(self, run: Run, name: str | None) -> None:
        """Await an output as soon as it is there, or all of them at the end (None), and compare."""
        try:
            if name is None:
                outputs = await run
                for each in self.expected:
                    self._compare(each, outputs[each])
                return
            self._compare(name, await run.output(name))
            writers = run.plan.output_positions[name]
            if not run.done and any(run._state.status_of(each) != DONE for each in writers):
                self._say(f"output {name!r} was handed over before all that write it were done")
        except RunCancelled as error:
            if self.cancel_s is None:
                self._say(f"cancelled by nobody: {_first(error)}")
        except Exception as error:  # whatever a run may end with
            self._say(f"{error}: {_first(error)}")

    def _compare(self, name: str, value: Any) -> None:
        if not np.array_equal(value, self.expected[name]):
            self._say(f"output {name!r} differs from the serial run")


def _smaller(program: RandomProgram, seed: int, reason: str, machine: Machine | None) -> tuple[Graph, int, str]:
    """A smaller graph that fails as well, with the seed of its order."""
    number, why = seed, reason

    def fails(graph: Graph) -> bool:
        nonlocal number, why
        expected = run_serial(graph, **program.inputs)
        for tried in (number, *range(_TRIES)):
            found = explore_one(graph, program.inputs, tried, expected, machine)
            if found is not None:
                number, why = tried, found
                return True
        return False

    return shrunk(program.graph, fails), number, why


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
