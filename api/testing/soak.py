"""Random programs against the serial oracle: plain, failing, cancelled, side by side, in hardly enough memory."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import trio
from plait.errors import RunCancelled, RunFailed
from plait.graph import Graph
from plait.scheduler import Run, Scheduler, open_scheduler
from plait.testing.checker import check_plan
from plait.testing.oracle import run_serial
from plait.testing.programs import RandomProgram, random_program

_TOGETHER = 4  # programs side by side
_SCALARS = 256  # bytes to spare: results of unknown size are single numbers


class Planted(Exception):
    """The failure that a soak plants."""


async def soak(seeds: range, streams: int, items: int = 40, devices: Sequence[str | None] = ()) -> int:
    """Run a random program per seed and compare bytes; AssertionError names the seed. Returns how many were run.

    With ``devices``, items ask for one of them at random.
    """
    async with (
        open_scheduler(devices="all" if devices else "host", streams=streams) as scheduler,
        trio.open_nursery() as nursery,
    ):
        limit = trio.CapacityLimiter(_TOGETHER)
        for seed in seeds:
            await limit.acquire_on_behalf_of(seed)
            nursery.start_soon(_one_and_release, scheduler, seed, items, devices, limit)
    return len(seeds)


async def soak_memory(seeds: range, streams: int, items: int = 40, devices: Sequence[str | None] = ()) -> int:
    """As ``soak``, four programs at a time under limits hardly above what the most demanding item needs.

    A quarter of the programs have an item that raises. Afterwards nothing may be held. Returns how many runs moved
    something to make room.
    """
    moved = 0
    for first in range(seeds.start, seeds.stop, _TOGETHER):
        random, some = Random(first), range(first, min(first + _TOGETHER, seeds.stop))
        where = "all" if devices else "host"
        limits = await _tight_limits(some, random, where, streams, items, devices)
        async with open_scheduler(devices=where, streams=streams, memory_limit=limits) as scheduler:
            runs: list[Run] = []
            async with trio.open_nursery() as nursery:
                for seed in some:
                    nursery.start_soon(_one, scheduler, seed, items, devices, runs)
            for use in scheduler.memory.values():
                assert not use.in_use and not use.reserved, f"seeds {some.start} to {some.stop - 1}: left over: {use}"
            moved += sum(any(use.moved_out or use.moved_in for use in run.memory.values()) for run in runs)
    return moved


async def _tight_limits(
    seeds: range, random: Random, where: str, streams: int, items: int, devices: Sequence[str | None]
) -> dict[str, int]:
    largest: dict[str, int] = {}
    async with open_scheduler(devices=where, streams=streams) as scheduler:  # with others, items may go elsewhere
        for seed in seeds:
            for name, use in scheduler.compile(random_program(seed, items, devices).graph).memory.items():
                largest[name] = max(largest.get(name, 0), use.largest)
    return {name: _SCALARS + int(most * random.uniform(1, 1.5)) for name, most in largest.items()}


async def _one_and_release(
    scheduler: Scheduler, seed: int, items: int, devices: Sequence[str | None], limit: trio.CapacityLimiter
) -> None:
    try:
        await _one(scheduler, seed, items, devices, None)
    finally:
        limit.release_on_behalf_of(seed)


async def _one(
    scheduler: Scheduler, seed: int, items: int, devices: Sequence[str | None], runs: list[Run] | None
) -> None:
    program = random_program(seed, items, devices)
    random = Random(seed)
    fates = ("plain", "plain", "cancel", "early") if runs is None else ("plain", "cancel", "early", "fail")
    fate = random.choice(fates)
    expected = await trio.to_thread.run_sync(lambda: run_serial(program.graph, **program.inputs))
    if fate == "fail":
        _plant(program.graph, random)
    plan = scheduler.compile(program.graph)
    check_plan(plan)
    run = scheduler.start(plan, program.inputs, priority=random.randint(-1, 1))
    if runs is not None:
        runs.append(run)
    await _fulfil(run, program, fate, random, expected)


async def _fulfil(run: Run, program: RandomProgram, fate: str, random: Random, expected: dict[str, Any]) -> None:
    seed, names = program.seed, list(expected)
    if fate == "cancel":
        for _ in range(random.randint(0, 5)):
            await trio.lowlevel.checkpoint()
        run.cancel()
    got: dict[str, Any] = {}
    try:
        if fate == "early":
            for name in random.sample(names, min(3, len(names))):
                got[name] = await run.output(name)
        got.update(await run)
    except RunCancelled:
        assert fate == "cancel", f"seed {seed}: cancelled by nobody"
        return
    except RunFailed as failure:
        planted = fate == "fail" and all(isinstance(error.__cause__, Planted) for error in failure.exceptions)
        if not planted:
            raise AssertionError(f"seed {seed}: {failure.exceptions}") from failure
        return
    for name, value in got.items():
        assert np.array_equal(value, expected[name]), f"seed {seed}: output {name!r} differs from the serial run"


def _plant(graph: Graph, random: Random) -> None:
    """One more item, behind one of the others: it raises."""
    item = random.choice(graph.items)
    graph.options(after=[item], name="planted").call(_raise)


def _raise() -> None:
    raise Planted("planted by the soak")
