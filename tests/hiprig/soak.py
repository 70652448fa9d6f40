"""Soak of device runs: random programs side by side, cancelled, timed out, failing, captured, on devices that fail.

python tests/hiprig/run.py python tests/hiprig/soak.py --programs 10000 --devices 2 --faults 0.33 --seed 0 [--memory]

Every output that a run gives must equal the serial oracle's, every failure must be one that was asked for, nothing may
hang, and pools, pinned memory and threads must come back to what they were. Exit status 1 names the program.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import os
import random
import sys
import threading
import time
from typing import Any

import cupy
import numpy as np
import plait
import rig
import trio
from plait.testing import random_program, run_serial

HANG_S = 60
SCALARS = 256  # bytes: results of unknown size are single numbers
FAULTS = (
    lambda chance: rig.fail_async(
        "kernel", chance.choice((rig.ILLEGAL_ADDRESS, rig.LAUNCH_FAILURE)), chance.randint(1, 60)
    ),
    lambda chance: rig.fail_async("copy", rig.ILLEGAL_ADDRESS, chance.randint(1, 20)),
    lambda chance: rig.fail("hipMalloc", rig.OUT_OF_MEMORY, chance.randint(1, 5)),
    lambda chance: rig.fail("hipModuleLaunchKernel", rig.LAUNCH_FAILURE, chance.randint(1, 3)),
    lambda chance: rig.fail("hipMemcpyAsync", rig.ILLEGAL_ADDRESS, chance.randint(1, 3)),
)


class Planted(Exception):
    """What items raise on purpose."""


class Soak:
    """Counts of what became of the runs."""

    def __init__(self, devices: int, items: int, memory: bool = False) -> None:
        self.memory = memory
        self.moved = 0
        self.places = [None, "hip", *(f"hip:{ordinal}" for ordinal in range(devices))]
        self.items = items
        self.fates: collections.Counter[str] = collections.Counter()

    async def batch(self, seed: int, count: int, faulty: bool) -> None:
        """Programs ``seed`` and following, side by side on one scheduler; a fault strikes somewhere if ``faulty``."""
        chance = random.Random(seed)
        if faulty:
            chance.choice(FAULTS)(chance)
        streams, trace = chance.randint(1, 3), chance.random() < 0.5
        limits = await self.limits(range(seed, seed + count), streams, chance) if self.memory else None
        async with plait.open_scheduler(streams=streams, trace=trace, memory_limit=limits) as scheduler:
            async with trio.open_nursery() as nursery:
                for each in range(seed, seed + count):
                    nursery.start_soon(self.program, scheduler, each, faulty)
            for use in scheduler.memory.values():
                assert not use.in_use and not use.reserved, f"programs from {seed} on: {use}"
        rig.clear()

    async def limits(self, seeds: range, streams: int, chance: random.Random) -> dict[str, int]:
        """Hardly more memory than the most demanding item needs, for some of the devices and the host."""
        largest: dict[str, int] = {}
        async with plait.open_scheduler(streams=streams) as scheduler:  # with others, items may be placed elsewhere
            for seed in seeds:
                plan = scheduler.compile(random_program(seed, self.items, self.places).graph)
                for name, use in plan.memory.items():
                    largest[name] = max(largest.get(name, 0), use.largest)
        return {
            name: SCALARS + int(most * chance.uniform(1, 1.5))
            for name, most in largest.items()
            if chance.random() < 0.8
        }

    async def program(self, scheduler: Any, seed: int, faulty: bool) -> None:
        """One program, whatever its fate."""
        chance = random.Random(seed)
        program = random_program(seed, self.items, self.places)
        expected = await trio.to_thread.run_sync(lambda: run_serial(program.graph, **program.inputs))
        fate = chance.choice(("plain", "plain", "early", "cancel", "fail", "isolate", "timeout", "capture"))
        if self.memory and fate == "capture":
            fate = "plain"  # a captured plan keeps its memory
        options: dict[str, Any] = {"on_error": "isolate"} if fate == "isolate" else {}
        if fate == "timeout":
            options["timeout"] = chance.uniform(1e-4, 2e-2)
        if fate in ("fail", "isolate"):
            plant(program.graph, chance)
        got: dict[str, Any] = {}
        try:
            with trio.fail_after(HANG_S):
                got = await self.fulfil(scheduler, program, fate, chance, options)
            self.fates[f"{fate}: done"] += 1
        except plait.RunFailed as error:
            causes = {type(each.__cause__) for each in error.exceptions}
            allowed: set[Any] = {Planted} if fate in ("fail", "isolate") else set()
            allowed |= {TimeoutError} if fate == "timeout" else {RuntimeError} if fate == "cancel" else set()
            allowed |= {plait.DeviceLost, plait.OutOfMemory} if faulty else set()
            if not causes <= allowed:
                raise AssertionError(f"program {seed}, {fate}: {[str(each) for each in error.exceptions]}") from error
            self.fates[f"{fate}: {', '.join(sorted(cause.__name__ for cause in causes))}"] += 1
        except plait.DeviceLost:
            assert faulty, f"program {seed}: a device is lost, and nobody asked for it"
            self.fates[f"{fate}: refused"] += 1
        except plait.PlanError as error:
            assert "can be captured" in str(error), f"program {seed}: {error}"
            self.fates["capture: nothing to capture"] += 1
        for name, value in got.items():
            assert np.array_equal(value, expected[name]), f"program {seed}, {fate}: output {name!r} differs"

    async def fulfil(
        self, scheduler: Any, program: Any, fate: str, chance: random.Random, options: dict[str, Any]
    ) -> dict[str, Any]:
        plan = scheduler.compile(program.graph)
        if fate == "capture":
            plan = plan.capture()
            for _ in range(2):
                await scheduler.run(plan, program.inputs)
        run = scheduler.start(plan, program.inputs, priority=chance.randint(-1, 2), **options)
        got: dict[str, Any] = {}
        if fate == "cancel":
            for _ in range(chance.randint(0, 30)):
                await trio.lowlevel.checkpoint()
            run.cancel()
        if fate == "early":
            for name in chance.sample(list(program.graph.outputs), 2):
                got[name] = await run.output(name)
        got.update(await run)
        self.moved += any(use.moved_out or use.moved_in for use in run.memory.values())
        return got


def plant(graph: Any, chance: random.Random) -> None:
    """Let one call of the graph raise."""
    calls = [item for item in graph.items if item.kind == "call"]
    if not calls:
        return

    def planted(*_: object) -> None:
        raise Planted

    async def aplanted(*_: object) -> None:
        raise Planted

    item = chance.choice(calls)
    item.function = aplanted if item.function.__name__ == "amix" else planted
    graph._program = None


def held() -> tuple[list[int], int]:
    """Bytes in use of each device's pool, and threads at work for plait; those that idle in trio's cache are not."""
    gc.collect()
    until = time.monotonic() + 5  # a thread that looks after events leaves a moment after the last of them
    while at_work() and time.monotonic() < until:
        time.sleep(0.05)
    pool, used = cupy.get_default_memory_pool(), []
    for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(ordinal):
            used.append(pool.used_bytes())
    return used, at_work()


def at_work() -> int:
    return sum(not thread.name.startswith(("Trio", "Main")) for thread in threading.enumerate())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--faults", type=float, default=0.33, help="share of batches that meet a fault")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", action="store_true", help="under memory limits that are tight")
    options = parser.parse_args()
    os.environ["HIPCPU_DEVICES"] = str(options.devices)
    rig.enter(options.devices)
    soak, chance = Soak(options.devices, options.items, options.memory), random.Random(options.seed)
    trio.run(soak.batch, options.seed, 3, False)  # what is made once, for ever, is in place
    (before, threads), began = held(), time.monotonic()
    batch = 3
    for seed in range(options.seed, options.seed + options.programs, batch):
        faulthandler.dump_traceback_later(3 * HANG_S, exit=True)
        try:
            trio.run(
                soak.batch, seed, min(batch, options.seed + options.programs - seed), chance.random() < options.faults
            )
        except BaseException:
            print(f"programs {seed} to {seed + batch - 1} failed", file=sys.stderr)
            raise
    faulthandler.cancel_dump_traceback_later()
    after, now = held()
    for fate, count in sorted(soak.fates.items()):
        print(f"{count:7} {fate}")
    if options.memory:
        print(f"{soak.moved} programs moved something to make room")
    print(f"{options.programs} programs in {time.monotonic() - began:.0f} s")
    print(f"device bytes in use: {before} before, {after} after; threads: {threads} before, {now} after")
    assert after == before, "device memory is still in use"
    assert now <= threads, "threads stay behind"


if __name__ == "__main__":
    main()
