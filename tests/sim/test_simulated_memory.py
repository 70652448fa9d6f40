"""Memory of simulated machines: sizes of devices, limits of runs, what is moved to make room."""

from __future__ import annotations

from typing import Any

import numpy as np
import plait
import pytest
from plait.scheduler.simulate import simulate
from plait.testing import run_serial

GIB = 1 << 30


def nothing(*_: object) -> None:
    """Stands for work that is not called."""


def held_at_once(count: int, nbytes: int) -> plait.Graph:
    """``count`` results that all live until the last is there."""
    graph = plait.Graph("held")
    with graph.defaults(device="cuda:0", cost=1e-3, nbytes=nbytes):
        made = [graph.call(nothing) for _ in range(count)]
        graph.barrier()
        total = made[0]
        for value in made[1:]:
            total = graph.call(nothing, total, value)
    graph.output("y", total)
    return graph


def test_terabytes_fit_in_a_laptop() -> None:
    machine = plait.machine(plait.machine("8xh100").scaled(memory=1000), dry=True)
    found = simulate(held_at_once(20, 1000 * GIB), machine)
    assert found.report.devices[1].peak_bytes >= 20 * 1000 * GIB


def test_a_device_is_as_large_as_its_machine_says() -> None:
    with pytest.raises(plait.RunFailed) as caught:
        simulate(held_at_once(100, GIB), plait.machine("8xh100", dry=True))
    cause = caught.value.exceptions[0].__cause__
    assert isinstance(cause, plait.OutOfMemory)
    assert str(80 * GIB) in str(cause)


def test_within_a_limit_what_is_not_in_use_moves_and_that_takes_time() -> None:
    machine = plait.machine("8xh100", dry=True)
    free = simulate(held_at_once(100, GIB), plait.machine(machine.scaled(memory=2), dry=True))
    roomy = simulate(held_at_once(20, GIB), machine, memory_limit=0.99)
    tight = simulate(held_at_once(100, GIB), machine, memory_limit=16 * GIB)
    use = tight.run.memory["cuda:0"]
    assert tight.report.devices[1].peak_bytes <= 16 * GIB
    assert use.moved_in > 50 * GIB
    assert roomy.run.memory["cuda:0"].moved_out == 0
    # What was moved went over PCIe, one copy at a time in each direction, and the run could not be faster than that.
    assert tight.makespan_s > max(free.makespan_s, use.moved_in / 64e9)


def test_what_was_moved_comes_back_as_it_was() -> None:
    def double(*arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return 2 * sum(arrays)

    graph = plait.Graph("moved")
    x = graph.input("x", (1000,), "float64")
    with graph.defaults(device="cuda:0", nbytes=8000, cost=1e-3):
        made = [graph.call(double, x)]
        for _ in range(10):
            made.append(graph.call(double, made[-1]))
        graph.output("y", graph.call(double, made[0], made[1], made[2]))
        graph.output("z", graph.call(double, made[-1], made[5]))
    given = np.arange(1000.0)
    found = simulate(graph, plait.machine("8xh100"), {"x": given}, memory_limit=40_000)
    assert found.run.memory["cuda:0"].moved_out > 0
    for name, expected in run_serial(graph, x=given).items():
        assert np.array_equal(found.outputs[name], expected)


def test_a_simulated_host_has_nowhere_to_move_to() -> None:
    with pytest.raises(plait.PlanError, match="host"):
        simulate(held_at_once(2, 8), plait.machine("8xh100", dry=True), memory_limit={"host": GIB})
