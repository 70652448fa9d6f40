"""Policies on the rig's devices: what is free to go either way gives the same bytes, and its times are learnt."""

import numpy as np
import plait
import pytest
from plait import Graph
from plait.scheduler.policies import POLICIES
from plait.scheduler.policies.cost_model import CostModel


def shift(x):
    return x * 2 + 1


def layers(count=4, width=4):
    """Items that are cheaper on a device, or on the host, in turn."""
    g = Graph("layers")
    row = [g.input(f"x{k}", shape=(64,), dtype="float64") for k in range(width)]
    for layer in range(count):
        fast, slow = ("hip", "host") if layer % 2 else ("host", "hip")
        on = g.options(cost={fast: 1e-4, slow: 1e-2})
        row = [on.call(shift, x) for x in row]
    for k, x in enumerate(row):
        g.output(f"y{k}", x)
    return g


@pytest.mark.parametrize("policy", [*POLICIES, "fifo+locality"])
async def test_what_may_run_either_way_gives_the_same_bytes(policy):
    inputs = {f"x{k}": np.arange(64.0) + k for k in range(4)}
    async with plait.open_scheduler(policy=policy, streams=2) as scheduler:
        plan = scheduler.compile(layers())
        result = await scheduler.run(plan, inputs)
    for k in range(4):
        assert np.array_equal(result[f"y{k}"], shift(shift(shift(shift(inputs[f"x{k}"])))))
    if policy in ("critical-path", "heft", "locality"):
        assert {plan.place(position).partition(":")[0] for position in range(len(plan.calls))} == {"host", "hip"}


async def test_times_on_both_kinds_are_learnt():
    model = CostModel()
    async with plait.open_scheduler(costs=model) as scheduler:
        run = scheduler.start(layers(), {f"x{k}": np.ones(64) for k in range(4)})
        await run
    assert model.seconds("shift", "host") > 0
    assert model.seconds("shift", "hip") > 0
    assert CostModel.from_trace(run.trace).seconds("shift", "hip") > 0
