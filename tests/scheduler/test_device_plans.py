"""Plans for devices that need not be there: placement, transfers, streams, waits, and a checker that would notice."""

import dataclasses

import numpy as np
import pytest
from plait import Graph, Kernel, PlanError, update, write
from plait.devices import HOST, GpuDevice
from plait.graph import Edges
from plait.scheduler.compile import compile_plan
from plait.scheduler.expand import Transfer, expand
from plait.testing import check_plan, random_program

HOST_DEVICE = HOST.devices()[0]
TWO = (HOST_DEVICE, GpuDevice("cuda", 0), GpuDevice("cuda", 1))


def compiled(graph, devices=TWO, streams=(2, 2)):
    return compile_plan(graph.program(), devices, streams, "critical-path")


def transfers(plan):
    return [item.name for item in plan.work if isinstance(item, Transfer)]


@pytest.mark.parametrize("devices", [("cuda:0",), ("cuda:0", "cuda:1"), (None, "cuda"), (None, "cuda:0", "gpu")])
def test_random_programs_are_ordered_and_read_no_stale_replica(devices):
    for seed in range(75):
        check_plan(compiled(random_program(seed, 25, devices).graph))


def noticed(plan):
    try:
        check_plan(plan)
    except PlanError:
        return True
    return False


def test_the_checker_notices_a_missing_wait():
    """Not each: an item that slices nothing out of a buffer waits for it to be there, which the checker lets pass."""
    found = []
    for seed in range(10):
        plan = compiled(random_program(seed, 25, (None, "cuda")).graph)
        for gone in range(0, len(plan.waits), 7):
            kept = np.arange(len(plan.waits)) != gone
            found.append(noticed(dataclasses.replace(plan, waits=plan.waits.keep(kept))))
    assert sum(found) > 0.9 * len(found) > 20


def test_the_checker_notices_a_transfer_that_brings_nothing():
    found = []
    for seed in range(10):
        plan = compiled(random_program(seed, 25, (None, "cuda")).graph)
        for index, item in enumerate(plan.work):
            if isinstance(item, Transfer) and item.source is not None:
                empty = dataclasses.replace(item, source=None, filled=False)
                work = (*plan.work[:index], empty, *plan.work[index + 1 :])
                found.append(noticed(dataclasses.replace(plan, work=work)))
    assert sum(found) > 0.9 * len(found) > 20


def test_a_value_crosses_once_each_way():
    g = Graph()
    x = g.input("x", shape=(8,), dtype="float32")
    on = g.options(device="cuda:0")
    y = on.call(np.add, x, x)
    z = on.call(np.multiply, x, y)
    g.output("z", z)
    g.output("again", g.call(np.sqrt, z))
    assert transfers(compiled(g)) == ["x to cuda:0", "multiply#1 to host"]


def test_a_buffer_of_the_run_is_made_where_it_is_used():
    g = Graph()
    acc = g.buffer("acc", (8,), fill=1)
    g.options(device="cuda:1").call(np.negative, acc, update(acc))
    plan = compiled(g)
    assert transfers(plan) == ["acc on cuda:1"]
    assert not plan.host_made


def test_what_is_wholly_written_is_not_brought():
    g = Graph()
    x = g.input("x", shape=(8,), dtype="float64")
    g.options(device="cuda:0").call(np.copyto, write(x), 1.0)
    g.output("x", x)
    assert transfers(compiled(g)) == ["x on cuda:0", "x to host"]


def test_an_array_given_as_a_plain_argument_is_brought_too():
    g = Graph()
    table = np.arange(4.0)
    y = g.options(device="cuda").call(np.add, g.input("x"), table)
    g.options(device="cuda").call(np.add, y, [{"deep": table}])
    assert sorted(transfers(compiled(g))) == ["argument of add#0 to cuda:0", "x to cuda:0"]


def test_independent_items_spread_over_the_devices_of_a_platform_and_chains_stay_together():
    g = Graph()
    with g.defaults(device="cuda"):
        for _ in range(4):
            value = g.call(np.ones, 4)
            for _ in range(5):
                value = g.call(np.negative, value)
    plan = compiled(g)
    places = {item.index: plan.place(position) for position, item in enumerate(plan.items)}
    chains = [{places[first + k] for k in range(6)} for first in range(0, 24, 6)]
    assert all(len(chain) == 1 for chain in chains)
    assert sorted(place for chain in chains for place in chain) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]


def test_a_chain_keeps_its_stream_and_needs_no_event():
    g = Graph()
    value = g.input("x")
    for _ in range(6):
        value = g.options(device="cuda:0").call(np.negative, value)
    plan = compiled(g)
    streams = {plan.stream(position) for position, item in enumerate(plan.items) if not isinstance(item, Transfer)}
    assert len(streams) == 1
    assert plan.explain().count("(stream order)") == 5


def test_independent_chains_get_streams_of_their_own():
    g = Graph()
    for _ in range(2):
        value = g.options(device="cuda:0").call(np.ones, 3)
        for _ in range(3):
            value = g.options(device="cuda:0").call(np.negative, value)
    plan = compiled(g)
    assert {plan.stream(position) for position in range(8)} == {"cuda:0/compute:0", "cuda:0/compute:1"}


def test_the_host_alone_knows_nothing_of_devices():
    g = Graph()
    g.output("y", g.call(np.negative, g.input("x")))
    plan = compiled(g)
    assert plan.on_device is None
    assert plan.work == plan.program.items
    assert plan.stream(0) is None


def test_a_barrier_between_device_items_stays_on_the_device():
    g = Graph()
    with g.defaults(device="cuda:0"):
        g.call(np.ones, 3)
        g.call(np.ones, 3)
    g.barrier()
    g.options(device="cuda:0").call(np.ones, 3)
    plan = compiled(g)
    assert {plan.place(position) for position in range(len(plan.work))} == {"cuda:0"}


@pytest.mark.parametrize(
    ("device", "message"),
    [("hip:0", "wants device 'hip:0'"), ("cuda:7", "cuda:0, cuda:1"), ("tpu", "recorded at .*test_device_plans.py")],
)
def test_a_device_that_is_not_there_is_refused_before_anything_runs(device, message):
    g = Graph()
    g.options(device=device).call(np.ones, 3)
    with pytest.raises(PlanError, match=message):
        compiled(g)


def test_an_async_function_cannot_go_to_a_device():
    async def fetch():
        return 1

    g = Graph()
    g.options(device="cuda").call(fetch)
    with pytest.raises(PlanError, match="async function"):
        compiled(g)


def test_without_a_host_everything_goes_to_the_devices():
    g = Graph()
    g.output("y", g.call(np.negative, g.call(np.ones, 3)))
    plan = compiled(g, (GpuDevice("hip", 0),))
    assert {plan.place(position) for position in range(len(plan.work))} == {"hip:0"}


def test_no_device_at_all_is_refused():
    g = Graph()
    g.call(np.ones, 3)
    with pytest.raises(PlanError, match="no host device"):
        compiled(g, ())


def test_a_user_priority_is_inherited_by_the_transfers_of_an_item():
    g = Graph()
    for k in range(5):
        g.options(device="cuda:0", priority=9 if k == 4 else 0).call(np.negative, g.input(f"x{k}"))
    plan = compiled(g)
    first = [plan.item(position).name for position in range(2)]
    assert first == ["x4 to cuda:0", "negative#4"]


def test_edges_of_the_program_stay_edges_of_the_plan():
    g = Graph()
    acc = g.buffer("acc", (4,), fill=0)
    reader = g.options(device="cuda:0").call(np.sum, acc)
    g.options(device="cuda:1").call(np.copyto, write(acc), 3.0)
    g.output("sum", reader)
    plan = compiled(g)
    check_plan(plan)
    assert isinstance(plan.edges, Edges)


def test_a_kernel_that_writes_what_was_recorded_as_read_is_refused():
    double = Kernel("twice", {"gpu": 'extern "C" __global__ void twice(const float *x, float *y) {}'}, grid=1, block=1)
    g = Graph()
    x, y = g.input("x"), g.buffer("y", (4,), "float32")
    on = g.options(device="cuda:0")
    on.call(double, x, write(y))
    compiled(g)
    on.call(double, x, y)
    with pytest.raises(PlanError, match=r"item 'twice#1' .* writes its argument 1, .* pass plait.update"):
        compiled(g)


@pytest.mark.parametrize("fast", [True, False])
def test_a_replica_is_copied_over_the_fastest_link_the_hosts_among_equals(fast):
    g = Graph("nearest")
    x = g.input("x", (10,), "float64")
    first = g.options(device="cuda:0").call(np.negative, x)
    g.output("first", g.options(device="cuda:1").call(np.add, x, first))
    program = g.program()
    bandwidth = np.full((3, 3), 10e9)
    bandwidth[1, 2] = bandwidth[2, 1] = 100e9 if fast else 10e9
    expansion = expand(program, [1, 2], ("host", "cuda:0", "cuda:1"), bandwidth)
    sources = {item.name: item.source for item in expansion.items if isinstance(item, Transfer) and item.target == 2}
    assert sources == {"x to cuda:1": 1 if fast else 0, "negative#0 to cuda:1": 1}
