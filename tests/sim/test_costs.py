"""What simulated items take: given, recorded, by size, by the roofline, with noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plait
import pytest
from plait.devices.sim import DeviceModel, HostModel, LinkModel, Machine
from plait.graph import Edges
from plait.scheduler.machine_costs import ItemTimes
from plait.scheduler.policies.cost_model import CostModel
from plait.scheduler.simulate import simulate
from plait.scheduler.trace import RECORD, Trace

PLAIN = Machine(
    "plain",
    HostModel(workers=2, flops_per_s=1e9, bytes_per_s=1e9),
    (DeviceModel("cuda", 0, flops_per_s=1e12, bytes_per_s=1e11),),
    (LinkModel("bus", ("host", "cuda"), 1e9),),
)


def nothing(*_: object) -> None:
    """Stands for work that is not called."""


def one_item(**options: Any) -> plait.Graph:
    graph = plait.Graph("one")
    x = graph.input("x", (1000,), "float64")
    graph.output("y", graph.options(name="it", **{"nbytes": 2000, **options}).call(nothing, x))
    return graph


def took(graph: plait.Graph, **options: Any) -> float:
    """Seconds of the item called ``it``."""
    trace = simulate(graph, plait.machine(PLAIN, dry=True, **options)).trace
    (record,) = [record for record in trace.records if trace.names[record["item"]] == "it"]
    return float(record["end_ns"] - record["start_ns"]) / 1e9


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"cost": 3e-3}, 3e-3),
        ({"cost": {"host": 1e-3, "cuda": 5e-3}}, 1e-3),
        ({"cost": {"host": 1e-3, "cuda": 5e-3}, "device": "cuda"}, 5e-3),
        ({}, 10_000 / 1e9),  # its 8,000 and 2,000 bytes through the host's memory
        ({"flops": 1e6}, 1e-3),
        ({"flops": 1e9, "device": "cuda"}, 1e-3),
        ({"flops": 1.0, "device": "cuda"}, 10_000 / 1e11),
    ],
)
def test_an_item_takes_what_it_says_or_what_its_size_needs(options: Any, seconds: float) -> None:
    assert took(one_item(**options)) == pytest.approx(seconds, abs=1e-9)


def test_costs_are_asked_first() -> None:
    graph = one_item(cost=1.0)
    assert took(graph, costs={"nothing": 2e-3}) == pytest.approx(2e-3)
    assert took(graph, costs={"other": 2e-3}) == pytest.approx(1.0)
    assert took(graph, costs=lambda item, kind, nbytes: nbytes * 1e-6 if kind == "host" else None) == pytest.approx(
        0.01
    )


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [
        ({10_000: 1e-3}, 1e-3),
        ({5_000: 1e-3}, 2e-3),  # grows in proportion beyond what is known
        ({20_000: 3e-3, 40_000: 9e-3}, 3e-3),
        ({5_000: 1e-3, 15_000: 3e-3}, 2e-3),
        ({}, 1.0),
    ],
)
def test_a_measured_kernel_is_interpolated(sizes: dict[int, float], seconds: float) -> None:
    assert took(one_item(cost=1.0), costs={"nothing": sizes}) == pytest.approx(seconds)


def test_costs_of_a_wrong_kind_are_refused() -> None:
    with pytest.raises(plait.PlanError, match="costs"):
        took(one_item(), costs=3.0)


def test_what_a_cost_function_raises_comes_out_of_start() -> None:
    with pytest.raises(ZeroDivisionError):
        took(one_item(), costs=lambda item, kind, nbytes: 1 / 0)


def test_a_learnt_model_is_a_cost_function_and_a_simulated_run_teaches_none() -> None:
    model = CostModel()
    model.observe("nothing", "host", 10_000, 4e-3)
    assert took(one_item(cost=1.0), costs=model) == pytest.approx(4e-3)
    with pytest.raises(plait.PlanError, match=r"plait\.machine"):
        simulate(one_item(), plait.machine(PLAIN, dry=True), costs=model)


def test_planners_know_what_a_machine_s_items_take() -> None:
    machine = plait.machine("8xh100", dry=True)
    graph = plait.Graph("many")
    for k in range(16):
        value = graph.options(device="cuda", flops=(k + 1) * 1e11, nbytes=8, name=f"item{k}").call(nothing)
        graph.output(str(k), value)
    found = simulate(graph, machine, policy="heft")
    assert found.report.over_bound < 1.6, "items of one and of sixteen units are not dealt out by number"


def test_noise_spreads_times_and_follows_the_seed() -> None:
    graph = one_item(cost=1e-3)
    first = took(graph, noise=0.2, seed=1)
    assert first != pytest.approx(1e-3, rel=1e-6)
    assert first == took(graph, noise=0.2, seed=1)
    drawn = [took(graph, noise=0.2, seed=seed) for seed in range(60)]
    assert sum(drawn) / 60 == pytest.approx(1e-3, rel=0.1)
    assert max(drawn) < 2e-3


def test_a_recorded_run_gives_the_costs_of_the_next(tmp_path: Path) -> None:
    graph = plait.Graph("recorded")
    x = graph.input("x")
    for k in range(4):
        x = graph.options(cost=(k + 1) * 1e-3).call(nothing, x)
    graph.output("y", x)
    recorded = simulate(graph, plait.machine(PLAIN, dry=True))
    recorded.trace.save(tmp_path / "trace.json")
    for times in (ItemTimes.from_trace(recorded.trace), ItemTimes.from_file(tmp_path / "trace.json")):
        again = simulate(graph, plait.machine(PLAIN, dry=True, costs=times))
        assert again.trace.records["end_ns"].tolist() == recorded.trace.records["end_ns"].tolist()
        assert times.kernels["nothing"] == pytest.approx(2.5e-3)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(plait.PlaitError):
        ItemTimes.from_file(tmp_path / "other.json")


def test_what_lies_between_items_is_learnt() -> None:
    """A chain of items of 2 ms, each begun 1 ms late: simulated with what its trace tells, it takes as long."""
    ms = 10**6
    trace = made_trace([(k, 0, 3 * k * ms + ms, 3 * (k + 1) * ms) for k in range(5)], [(k, k + 1) for k in range(4)])
    times = ItemTimes.from_trace(trace)
    assert times.gap_s == pytest.approx(1e-3)
    graph = plait.Graph("chain")
    value = graph.input("x", (10,), "float64")
    for k in range(5):
        value = graph.options(name=f"work#{k}").call(nothing, value)
    graph.output("y", value)
    again = Machine("again", HostModel(workers=2, overhead_s=times.gap_s), (), ())
    assert simulate(graph, plait.machine(again, dry=True, costs=times)).makespan_s == pytest.approx(15e-3)


def test_time_in_which_nothing_is_ready_is_no_gap() -> None:
    trace = made_trace([(0, 0, 0, 10), (1, 1, 2, 4), (2, 1, 13, 20)], [(0, 2), (1, 2)])
    assert ItemTimes.from_trace(trace).gap_s == pytest.approx((0 + 2 + 3) / 3 / 1e9)


def made_trace(rows: list[tuple[int, int, int, int]], waits: list[tuple[int, int]]) -> Trace:
    """Of items on two compute streams of the host: (item, stream, start, end), and what waits for what."""
    records = np.array([(item, stream, 0, start, end) for item, stream, start, end in rows], RECORD)
    names = tuple(f"work#{item}" for item in range(len(rows)))
    before, after = zip(*waits, strict=True)
    edges = Edges.of(len(rows), before, after)
    return Trace(records, ("host/compute:0", "host/compute:1"), "host", names, max(r[3] for r in rows), edges=edges)
