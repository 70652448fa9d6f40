"""Plans: the policy places what asks for no device, pins hold, and deadlines order runs or are refused."""

import threading

import numpy as np
import plait
import pytest
import trio
from plait import Graph, PlaitError, PlanError, write
from plait.devices import HOST, GpuDevice
from plait.scheduler.compile import compile_plan
from plait.scheduler.expand import Transfer
from plait.scheduler.links import links
from plait.scheduler.policies import POLICIES
from plait.testing import check_plan, random_program

DEVICES = (HOST.devices()[0], GpuDevice("cuda", 0), GpuDevice("cuda", 1))
NAMES = [*POLICIES, "fifo+heft", "critical-path+locality"]


def compiled(graph, policy="critical-path", streams=(2, 2)):
    plan = compile_plan(graph.program(), DEVICES, streams, policy)
    check_plan(plan)
    return plan


def where(plan):
    return {
        plan.item(position).name: plan.place(position)
        for position in range(len(plan.calls))
        if not isinstance(plan.item(position), Transfer)
    }


def independent(costs, **options):
    g = Graph("independent")
    x = g.input("x", shape=(8,), dtype="float32")
    for k, cost in enumerate(costs):
        g.output(f"y{k}", g.options(cost=cost, name=f"item {k}", **options).call(np.sqrt, x))
    return g


@pytest.mark.parametrize("policy", NAMES)
def test_random_programs_keep_their_order_under_every_policy(policy):
    for seed in range(12):
        compiled(random_program(seed, 25, (None, "cuda", "cuda:1")).graph, policy)


@pytest.mark.parametrize("policy", NAMES)
def test_a_device_that_is_asked_for_is_kept(policy):
    g = independent([{"host": 9.0, "cuda": 1.0}] * 3, device="host")
    g.options(name="there", device="cuda:1", cost=1.0).call(np.sqrt, g.input("z", shape=(8,), dtype="float32"))
    placed = where(compiled(g, policy))
    assert placed.pop("there") == "cuda:1"
    assert set(placed.values()) == {"host"}


def test_what_has_a_cost_on_several_kinds_is_placed_by_it():
    fast = {"host": 9.0, "cuda": 1.0}
    slow = {"host": 1.0, "cuda": 9.0}
    placed = where(compiled(independent([fast, slow, fast, slow])))
    assert [placed[f"item {k}"].partition(":")[0] for k in range(4)] == ["cuda", "host", "cuda", "host"]
    assert {placed["item 0"], placed["item 2"]} == {"cuda:0", "cuda:1"}


def test_a_plain_function_stays_on_the_host():
    assert set(where(compiled(independent([1.0, None]))).values()) == {"host"}


def test_load_is_shared_with_the_host_streams():
    """Eight items of one length on two GPUs and two streams: each gets two of them."""
    placed = where(compiled(independent([{"host": 1.0, "cuda": 1.0}] * 8)))
    counts = [list(placed.values()).count(name) for name in ("host", "cuda:0", "cuda:1")]
    assert counts == [4, 2, 2]


def test_an_urgent_item_stands_first():
    g = Graph()
    x = g.input("x", shape=(8,), dtype="float32")
    g.options(name="long", cost={"host": 5.0, "cuda": 5.0}).call(np.sqrt, x)
    g.options(name="short", cost={"host": 1.0, "cuda": 1.0}, priority=1).call(np.sqrt, x)
    plan = compiled(g)
    assert plan.position("short") < plan.position("long")


class Linked(GpuDevice):
    """A device that says how it is joined to others."""

    def __init__(self, ordinal, seconds_per_byte):
        super().__init__("cuda", ordinal)
        self.pace = seconds_per_byte

    def link_to(self, name):
        return None if name.startswith("cuda") else (1 / self.pace, 0.0)


def test_links_are_what_devices_say():
    bandwidth, latency = links([Linked(0, 1e-9), Linked(1, 3e-9)])
    assert bandwidth[0].tolist() == pytest.approx([np.inf, 1e9, 1e9 / 3])
    assert bandwidth[1, 2] == bandwidth[2, 1] == pytest.approx(1e9 / 4)  # through the host
    assert not latency.any()
    known = links([GpuDevice("cuda", 0), GpuDevice("cuda", 1)])[0]
    assert known[0, 1] == known[1, 0] > known[1, 2]


@pytest.mark.parametrize(("pace", "place"), [(1e-9, "cuda:0"), (1e-3, "host")])
def test_a_slow_link_keeps_an_item_where_its_data_is(pace, place):
    g = Graph()
    made = g.buffer("made", (1000,), dtype="float64")
    g.options(name="make", device="host", cost=1.0).call(np.copyto, write(made), 1.0)
    g.options(name="use", cost={"host": 2.0, "cuda": 1.0}).call(np.sqrt, made)
    plan = compile_plan(g.program(), (HOST.devices()[0], Linked(0, pace)), (2, 2), "critical-path")
    assert plan.place(plan.position("use")) == place


# ---- deadlines --------------------------------------------------------------------------------------------------


def path():
    g = Graph("path")
    a = g.options(name="load", cost=0.5).call(np.ones, 4)
    b = g.options(name="solve", cost=2.0).call(np.sqrt, a)
    g.options(name="aside", cost=0.1).call(np.sqrt, a)
    g.output("y", b)
    return g


async def test_a_deadline_that_the_path_disproves_is_refused_with_the_path():
    async with plait.open_scheduler(devices="host", streams=2) as scheduler:
        with pytest.raises(PlanError, match=r"deadline of 2 s.*take 2\.5 s: load 500 ms -> solve 2 s"):
            scheduler.start(path(), deadline=2.0)
        await scheduler.start(path(), deadline=2.6)


async def test_a_deadline_that_the_work_disproves_is_refused_with_the_work():
    async with plait.open_scheduler(devices="host", streams=2) as scheduler:
        with pytest.raises(PlanError, match=r"take 4 s in all, which is 2 s on each of 2 streams"):
            scheduler.start(independent([1.0] * 4), x=np.ones(8, np.float32), deadline=1.5)


async def test_unknown_costs_disprove_nothing():
    async with plait.open_scheduler(devices="host", streams=1) as scheduler:
        await scheduler.start(independent([None] * 4), x=np.ones(8, np.float32), deadline=1e-3)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan")])
async def test_a_deadline_is_a_number_of_seconds(wrong):
    async with plait.open_scheduler(devices="host") as scheduler:
        with pytest.raises(PlaitError, match="deadline must be a positive number"):
            scheduler.start(path(), deadline=wrong)


def test_slack_is_what_the_deadline_leaves():
    plan = compiled(path())
    slack = plan.slack(3.0)
    assert slack[plan.position("load")] == pytest.approx(0.5)
    assert slack[plan.position("solve")] == pytest.approx(0.5)
    assert slack[plan.position("aside")] == pytest.approx(2.4)


async def served(*runs):
    """The names of ``(name, cost, deadline)`` in the order in which one stream served them, all there at its start."""
    done, gate, held = [], threading.Event(), threading.Event()

    def hold():
        held.set()
        gate.wait()

    def graph(name, cost):
        g = Graph(name)
        first = g.options(cost=cost / 2).call(done.append, name)
        g.options(cost=cost / 2, after=[first]).call(done.append, name)
        return g

    async with plait.open_scheduler(devices="host", streams=1) as scheduler:
        holder = Graph("holder")
        holder.call(hold)
        running = [scheduler.start(holder)]
        while not held.is_set():
            await trio.lowlevel.checkpoint()
        running += [scheduler.start(graph(name, cost), deadline=deadline) for name, cost, deadline in runs]
        while len(scheduler.dispatcher.runs) < len(running):
            await trio.lowlevel.checkpoint()
        gate.set()
        for run in running:
            await run
    return "".join(done)


async def test_runs_are_served_by_slack():
    assert await served(("a", 2.0, 40.0), ("b", 2.0, 20.0), ("c", 2.0, 30.0)) == "bbccaa"


async def test_a_run_with_a_deadline_goes_before_one_without():
    assert await served(("a", 2.0, None), ("b", 2.0, 30.0), ("c", 2.0, 20.0)) == "ccbbaa"


async def test_a_long_rest_is_more_urgent_than_an_early_deadline():
    assert await served(("short", 1.0, 50.0), ("long", 30.0, 60.0)) == "longlongshortshort"
