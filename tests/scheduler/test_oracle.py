"""A thousand random programs against the serial oracle, and a checker that would notice a bad plan."""

import dataclasses

import numpy as np
import pytest
import trio
from plait import Graph, PlanError, RunFailed, open_scheduler
from plait.graph import Edges
from plait.testing import check_plan, random_program, run_serial, soak

PROGRAMS = 1000


@pytest.mark.parametrize("streams", [1, 2, 7])
def test_random_programs_equal_the_serial_oracle(streams):
    turn = (1, 2, 7).index(streams)
    assert trio.run(soak, range(turn, PROGRAMS, 3), streams)


@pytest.mark.parametrize("items", [0, 1, 2, 5])
def test_short_programs_side_by_side_equal_the_serial_oracle(items):
    assert trio.run(soak, range(150), 3, items)


@pytest.mark.parametrize("streams", [1, 2, 7])
@pytest.mark.parametrize("on_error", ["stop", "isolate"])
def test_random_failures_never_hang_and_never_give_wrong_bytes(streams, on_error):
    async def main():
        async with open_scheduler(streams=streams) as scheduler:
            for seed in range(40):
                program = random_program(seed, 30)
                expected = await trio.to_thread.run_sync(lambda p=program: run_serial(p.graph, **p.inputs))
                fail_at = program.graph.items[seed % len(program.graph.items)]
                if fail_at.kind != "call":
                    continue

                def planted(*_):
                    raise ZeroDivisionError

                fail_at.function = planted
                program.graph._program = None
                run = scheduler.start(program.graph, program.inputs, on_error=on_error)
                if on_error == "stop":
                    with pytest.raises(RunFailed) as caught:
                        await run
                    assert [error.item for error in caught.value.exceptions] == [fail_at.name]
                else:
                    result = await run
                    for name, value in result.items():
                        assert np.array_equal(value, expected[name]), (seed, name)
                    assert set(result) | set(result.missing) == set(expected)

    trio.run(main)


def test_the_checker_notices_a_missing_wait():
    async def main():
        async with open_scheduler(streams=1) as scheduler:
            g = Graph()
            acc = g.buffer("acc", (4,), fill=0)
            g.fill(acc[0:2], 1)
            g.fill(acc[1:3], 2)
            plan = scheduler.compile(g)
            check_plan(plan)
            nothing = Edges(2, *(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.uint8)))
            with pytest.raises(PlanError, match="nothing orders"):
                check_plan(dataclasses.replace(plan, waits=nothing))

    trio.run(main)
