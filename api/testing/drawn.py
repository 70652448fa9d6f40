"""The conditions of one explored run, drawn by seed: machine, policy, limits of memory, donations, cancellation."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
from plait.devices.memory import Donation
from plait.devices.sim import DeviceModel, HostModel, LateCompletion, LinkModel, Machine, SlowDevice
from plait.graph import Graph
from plait.scheduler import Run
from plait.scheduler.expand import HOST
from plait.scheduler.memory.part import memory_part
from plait.scheduler.policies import POLICIES, Policy, find

SPARE = 256  # bytes that a limit is above what its most demanding item needs: results of unknown size are numbers


def drawn_machine(random: Random, machine: Machine | None = None) -> Machine:
    """The machine, or two devices, with times of items, transfers and launches drawn anew."""
    faults: tuple[Any, ...] = () if machine is None else machine.faults
    if machine is None:
        devices = tuple(
            DeviceModel("cuda", ordinal, streams=random.randint(1, 3), launch_s=random.choice((0.0, 1e-6, 1e-4)))
            for ordinal in range(2)
        )
        slow = random.choice((1e5, 1e8, 1e11))
        links = (
            LinkModel("bus", ("host", "cuda"), slow, random.choice((0.0, 1e-5)), random.choice(("pair", "end", "all"))),
            LinkModel("peer", ("cuda", "cuda"), 1e8, 1e-6),
        )
        machine = Machine("explored", HostModel(workers=random.randint(1, 4)), devices, links)
        if random.random() < 0.3:
            faults = (LateCompletion(f"cuda:{random.randrange(2)}", random.choice((1e-5, 1e-3))),)
        if random.random() < 0.1:
            faults += (SlowDevice(f"cuda:{random.randrange(2)}", 20.0, until_s=1e-3),)
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
        faults=faults,
    )


def drawn_policy(random: Random) -> Policy:
    """An urgency for each item that is drawn, and a placement that is: what may run anywhere does."""
    salt = random.getrandbits(32)

    def drawn(problem: Any) -> Any:
        return np.random.default_rng(salt).random(len(problem.cost))

    return dataclasses.replace(find(random.choice(tuple(POLICIES))), name="drawn", order=drawn)


def drawn_limits(random: Random, run: Run) -> dict[str, int]:
    """For each device that a finished run used, a limit hardly above what one item of it needed at once."""
    plan, sizes = run.plan, run._state.sizes
    part = memory_part(plan)
    limits: dict[str, int] = {}
    for place, name in enumerate(plan.places):
        if place == HOST or not part.at[place]:
            continue
        most = max(
            sum(max(sizes[slot], part.declared[slot]) for slot in (*part.touched[at], *part.made[at])
                if part.place[slot] == place)
            for at in part.at[place]
        )  # fmt: skip
        limits[name] = SPARE + int(most * random.uniform(1, 1.5))
    return limits


def drawn_inputs(random: Random, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, some of them as copies that are donated."""
    return {
        name: Donation(value.copy()) if isinstance(value, np.ndarray) and random.random() < 0.3 else value
        for name, value in inputs.items()
    }


def given(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What is the caller's: arrays among inputs and constants, which a run may not change."""
    found = dict(inputs) | {
        f"constant {buffer.name}": buffer.value for buffer in graph.program().declared if buffer.kind == "constant"
    }
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copies, to compare with later."""
    return copy.deepcopy(dict(values))
