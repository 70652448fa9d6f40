"""What is behind a late item: streams keep the plan's order, copies have a stream for each source, sizes count."""

from __future__ import annotations

import plait
import pytest
from plait.scheduler.simulate import simulate


def nothing(*_: object) -> None:
    """Stands for work that is not called."""


def neighbours(layers: int, devices: int) -> plait.Graph:
    """Layers of four items a device, each of which reads two of the layer before; the device is the policy's choice."""
    g = plait.Graph("neighbours")
    on = g.options(cost={"cuda": 1e-4, "host": 1e-2}, nbytes=1 << 20)
    width = 4 * devices
    layer = [on.call(nothing) for _ in range(width)]
    for step in range(layers):
        apart = 1 + (step if step % 4 == 0 else 0)
        layer = [on.call(nothing, layer[k], layer[(k + apart) % width]) for k in range(width)]
    for k, value in enumerate(layer):
        g.output(f"end{k}", value)
    return g


@pytest.mark.parametrize("policy", ["critical-path", "heft", "locality"])
def test_items_that_wait_for_other_devices_hold_up_no_others(policy: str) -> None:
    found = simulate(neighbours(40, 8), plait.machine("8xh100", dry=True), policy=policy)
    ideal_s = 41 * 4 * 1e-4
    assert ideal_s <= found.makespan_s < 1.1 * ideal_s


def test_a_size_that_an_option_tells_counts_in_placing() -> None:
    """Four chains in parallel: worth four devices if what crosses is small, and one if it is large."""

    def used(nbytes: int) -> set[str]:
        g = plait.Graph("chains")
        on = g.options(cost={"cuda": 1e-4, "host": 1.0}, nbytes=nbytes)
        first = on.call(nothing)
        for k in range(4):
            g.output(f"end{k}", on.call(nothing, on.call(nothing, first)))
        run = simulate(g, plait.machine("8xh100", dry=True), policy="heft")
        return {use.name for use in run.report.devices if use.items}

    assert len(used(1 << 10)) == 4
    assert len(used(1 << 32)) == 1


def test_the_bound_counts_links_and_each_kind_of_copy_engine() -> None:
    g = plait.Graph("copies")
    for k in range(8):
        x = g.input(f"x{k}", shape=(8 << 20,), dtype="float64")
        g.output(f"y{k}", g.options(device="cuda:0", cost=1e-6, nbytes=8).call(nothing, x))
    machine = plait.machine("8xh100", dry=True)
    found = simulate(g, machine)
    assert 1.0 <= found.report.over_bound < 1.1
    assert "cuda:0" in found.report.busiest and "compute" not in found.report.busiest


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_the_bound_counts_the_streams_of_the_host_and_its_copies(streams: int) -> None:
    machine = plait.machine("8xh100", dry=True)
    g = plait.Graph("calls")
    for k in range(8):
        g.output(f"end{k}", g.options(cost=1e-3).call(nothing))
    assert 1.0 <= simulate(g, machine, streams=streams).report.over_bound < 1.1
    g = plait.Graph("copies")
    source = g.input("source", shape=(8, 1 << 20), dtype="float64")
    target = g.buffer("target", shape=(8, 1 << 20), dtype="float64")
    for k in range(8):
        g.copy(target[k], source[k])
    g.output("all", target)
    report = simulate(g, machine, streams=streams).report
    assert report.busiest == "host/copy" and 1.0 <= report.over_bound < 1.1
