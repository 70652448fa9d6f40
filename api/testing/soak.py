"""Random programs against the serial oracle: plain, failing, cancelled, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import trio
from plait.errors import RunCancelled, RunFailed
from plait.scheduler import Scheduler, open_scheduler
from plait.testing.checker import check_plan
from plait.testing.oracle import run_serial
from plait.testing.programs import random_program


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
        limit = trio.CapacityLimiter(4)
        for seed in seeds:
            await limit.acquire_on_behalf_of(seed)
            nursery.start_soon(_one_and_release, scheduler, seed, items, devices, limit)
    return len(seeds)


async def _one_and_release(
    scheduler: Scheduler, seed: int, items: int, devices: Sequence[str | None], limit: trio.CapacityLimiter
) -> None:
    try:
        await _one(scheduler, seed, items, devices)
    finally:
        limit.release_on_behalf_of(seed)


async def _one(scheduler: Scheduler, seed: int, items: int, devices: Sequence[str | None]) -> None:
    program = random_program(seed, items, devices)
    plan = scheduler.compile(program.graph)
    check_plan(plan)
    expected = await trio.to_thread.run_sync(lambda: run_serial(program.graph, **program.inputs))
    random = Random(seed)
    fate = random.choice(("plain", "plain", "cancel", "early"))
    run = scheduler.start(plan, program.inputs, priority=random.randint(-1, 1))
    names = list(expected)
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
        raise AssertionError(f"seed {seed}: {failure.exceptions}") from failure
    for name, value in got.items():
        assert np.array_equal(value, expected[name]), f"seed {seed}: output {name!r} differs from the serial run"
