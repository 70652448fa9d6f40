"""Many legal orders of one graph: completions and ready queues drawn by seed, results held against the oracle's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import numpy as np
import trio
from plait.devices.sim import DeviceModel, HostModel, LinkModel, Machine
from plait.errors import PlaitError
from plait.graph import Graph
from plait.scheduler import Run, open_scheduler
from plait.scheduler.policies import POLICIES, Policy, find
from plait.testing.oracle import run_serial
from plait.testing.programs import RandomProgram
from plait.testing.shrink import shrunk

_LONGEST_S = 1e6  # of virtual time: no run that still moves takes so long
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
    its time each is called, how many streams and workers there are, and the urgency of items; ``machine`` is the one to
    run on (two devices of kind ``cuda`` by default). Items must give the same in every legal order, as NumPy's do.

    ExplorationFailed if results differ from the serial ones, an item fails, nothing moves any more, or a free stream
    leaves a more urgent item waiting. It names the seed, and the smallest graph found that fails.
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
    """What went wrong under one order, None if nothing did."""
    random = Random(seed)
    drawn = drawn_machine(random, machine)
    streams = random.randint(1, 4)

    async def main() -> str | None:
        async with open_scheduler(devices=drawn, streams=streams, policy=_drawn_policy(random)) as scheduler:
            run = scheduler.start(graph, dict(inputs))
            with trio.move_on_after(_LONGEST_S):
                try:
                    outputs = await run
                except PlaitError as error:
                    return f"{error}: {_first(error)}"
                except ExceptionGroup as group:
                    return f"{group.args[0]}: {_first(group)}"
                for name, value in expected.items():
                    if not np.array_equal(outputs[name], value):
                        return f"output {name!r} differs from the serial run"
                return misordered(run, min(streams, drawn.host.workers))
            run.cancel()
            return f"nothing moves any more at {run.progress}"

    from trio.testing import MockClock  # noqa: PLC0415  it imports pytest where that is installed

    try:
        return trio.run(main, clock=MockClock(autojump_threshold=0))
    except Exception as error:  # whatever a broken scheduler raises out of its nursery
        return f"{type(error).__name__}: {_first(error)}"


def drawn_machine(random: Random, machine: Machine | None = None) -> Machine:
    """The machine, or two devices, with times of items, transfers and launches drawn anew."""
    if machine is None:
        device = DeviceModel("cuda", 0, streams=random.randint(1, 3), launch_s=random.choice((0.0, 1e-6, 1e-4)))
        other = DeviceModel("cuda", 1, streams=random.randint(1, 3))
        slow = random.choice((1e5, 1e8, 1e11))
        links = (
            LinkModel("bus", ("host", "cuda"), slow, random.choice((0.0, 1e-5)), random.choice(("pair", "end", "all"))),
            LinkModel("peer", ("cuda", "cuda"), 1e8, 1e-6),
        )
        machine = Machine("explored", HostModel(workers=random.randint(1, 4)), (device, other), links)
    longest = random.choice((1e-4, 1e-3, 1e-1))
    salt = random.getrandbits(48)

    def seconds(item: Any, kind: str, nbytes: int) -> float:
        drawn = Random(salt + item.index).random()
        return 0.0 if drawn < 0.1 else longest * drawn**4

    return Machine(
        name=machine.name,
        host=machine.host,
        devices=machine.devices,
        links=machine.links,
        costs=seconds,
        calls=random.choice(("start", "end", "either")),
        seed=random.getrandbits(32),
        faults=machine.faults,
    )


def _drawn_policy(random: Random) -> Policy:
    """An urgency for each item that is drawn, and a placement that is: what may run anywhere does."""
    salt = random.getrandbits(32)

    def drawn(problem: Any) -> Any:
        return np.random.default_rng(salt).random(len(problem.cost))

    return dataclasses.replace(find(random.choice(tuple(POLICIES))), name="drawn", order=drawn)


def misordered(run: Run, workers: int) -> str | None:
    """The first host item that a free lane served while a more urgent one was ready; None if there is none.

    Under groups that limit, an urgent item may have to wait, so these are not looked at.
    """
    plan, state = run.plan, run._state
    offsets, sources = plan.waits.predecessors()
    waiting: list[tuple[int, int, int]] = []
    for position, kind in enumerate(plan.kinds):
        before = sources[offsets[position] : offsets[position + 1]].tolist()
        if kind == 0 and position not in plan.groups:
            ready = max((state.finished[each] for each in before), default=state.begin_ns)
            waiting.append((position, ready, state.started[position]))
    for position, _, started in waiting:
        for other, ready, began in waiting:
            if other < position and ready < started < began:
                return f"{plan.item(position).name} was served before {plan.item(other).name}, which is more urgent"
    return None


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
