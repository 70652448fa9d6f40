"""Policies: every schedule could happen, obeys pins and priorities, and is no shorter than any bound."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import PlanError
from plait.graph.edges import CycleFound
from plait.graph.machine_bounds import area_bound, linear_bound, path_bound, travel_times
from plait.scheduler.policies import POLICIES, Policy, Problem, find, simulate
from plait.scheduler.policies.balance import cheapest_in_time, kind_costs, prices
from plait.scheduler.policies.improve import again, backwards, shifted
from plait.scheduler.policies.kinds import within_kinds
from plait.scheduler.policies.place import append, insert
from plait.scheduler.policies.rank import inherited_priority, upward
from plait.scheduler.policies.reserve import reserve
from policy_problems import check_valid, problems, published

NAMES = [*POLICIES, "fifo+heft", "critical-path+eager", "heft+critical-path"]


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems())
@settings(max_examples=35, deadline=None)
def test_every_schedule_could_happen(name, problem):
    schedule = find(name).plan(problem)
    check_valid(problem, schedule)
    check_valid(problem, simulate(problem, schedule.device, schedule.order))


PLACEMENTS = {
    "append": append,
    "insert": insert,
    "reserve": reserve,
    "cheapest": lambda problem, order: cheap(problem, order, True),
    "cheapest, ties by time": lambda problem, order: cheap(problem, order, False),
    "within kinds": lambda problem, order: within_kinds(problem, append(problem, order).device, order),
    "again": lambda problem, order: again(problem, backwards(problem), run(problem, order), target(problem, order)),
    "shifted": lambda problem, order: shifted(problem, backwards(problem), run(problem, order)),
}


def run(problem, order):
    return simulate(problem, append(problem, order).device, order)


def target(problem, order):
    return 0.9 * run(problem, order).makespan


def cheap(problem, order, by_load):
    bound, price = prices(problem)
    return cheapest_in_time(problem, order, price, np.zeros(problem.items), 1.2 * bound, by_load=by_load)


@pytest.mark.parametrize("place", PLACEMENTS)
@given(problem=problems())
@settings(max_examples=35, deadline=None)
def test_every_candidate_of_the_default_could_happen(place, problem):
    order = find("heft").plan(problem).order
    check_valid(problem, PLACEMENTS[place](problem, order))


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems())
@settings(max_examples=25, deadline=None)
def test_priorities_come_first(name, problem):
    """In the order, and in the run: no device starts an item while a more urgent one that could start there waits."""
    schedule = find(name).plan(problem)
    priority = inherited_priority(problem)
    assert bool((np.diff(priority[schedule.order]) <= 0).all())
    run = simulate(problem, schedule.device, schedule.order)
    for item in range(problem.items):
        there = run.device[item]
        for other in range(problem.items):
            if run.device[other] == there and priority[other] > priority[item]:
                # What arrives at the very moment may come behind an item of no length that ends at it.
                assert run.start[other] <= run.start[item] or arrival(problem, run, other) >= run.start[item]


def arrival(problem, run, item):
    found = 0.0
    for before, edge in problem.predecessors[item]:
        a, b = run.device[before], run.device[item]
        delay = problem.latency[a, b] + problem.nbytes[edge] / problem.bandwidth[a, b]
        found = max(found, run.finish[before] + delay)
    return found


@given(problem=problems(priorities=False), name=st.sampled_from(NAMES))
@settings(max_examples=90, deadline=None)
def test_no_schedule_is_shorter_than_a_bound(problem, name):
    makespan = find(name).plan(problem).makespan
    cost, count = kind_costs(problem), np.bincount(problem.kind, minlength=problem.cost.shape[1])
    delays = problem.latency + problem.nbytes[:, None, None] / problem.bandwidth
    heads, tails = travel_times(problem.edges, problem.seconds, delays)
    through = float((heads + problem.seconds.min(axis=1) + tails).max())
    area, linear = area_bound(cost, count), linear_bound(problem.edges, cost, count, heads, tails)
    path = path_bound(problem.edges, cost).seconds
    slack = 1e-6 * (1 + makespan)
    for bound in (through, area, linear, path):
        assert bound <= makespan + slack
    assert through >= path - slack
    assert linear >= max(area, path) - slack


def test_heft_is_the_published_schedule():
    schedule = find("heft").plan(published())
    assert schedule.makespan == 80
    ranks = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert upward(published()).tolist() == pytest.approx(ranks, abs=1e-3)
    assert (schedule.device + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]


def test_the_default_is_no_worse_there():
    assert find("critical-path").plan(published()).makespan <= 80


@given(problem=problems(priorities=False))
@settings(max_examples=35, deadline=None)
def test_the_default_is_no_longer_than_a_simulated_heft(problem):
    heft = find("heft").plan(problem)
    assert find("critical-path").plan(problem).makespan <= simulate(problem, heft.device, heft.order).makespan


@given(problem=problems())
@settings(max_examples=30, deadline=None)
def test_the_same_problem_has_the_same_schedule(problem):
    for name in NAMES:
        one, two = (find(name).plan(problem) for _ in range(2))
        assert one.order.tolist() == two.order.tolist()
        assert one.device.tolist() == two.device.tolist()


def test_a_policy_may_be_given():
    mine = Policy("last-first", lambda problem: np.arange(problem.items, dtype=float), POLICIES["fifo"].place)
    assert find(mine) is mine
    assert mine.plan(Problem.of([[1.0]] * 3, [])).order.tolist() == [2, 1, 0]


def test_order_and_placement_are_chosen_apart():
    problem = Problem.of([[2.0, 1.0]] * 2 + [[9.0, 9.0]], [], kind=[0, 1])
    assert find("fifo").plan(problem).order.tolist() == [0, 1, 2]
    assert find("heft").plan(problem).order.tolist()[0] == 2
    mixed = find("fifo+heft").plan(problem)
    assert mixed.order.tolist() == [0, 1, 2]
    assert mixed.device.tolist() == find("heft").plan(problem).device.tolist() or mixed.makespan == 10.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("heftt", r"unknown policy 'heftt' \(known: fifo, critical-path, heft.*did you mean 'heft'"),
        ("fifo+", "unknown policy"),
        ("+heft", "unknown policy"),
        (7, "unknown policy 7"),
    ],
)
def test_an_unknown_policy_names_the_choices(name, said):
    with pytest.raises(PlanError, match=said):
        find(name)


def test_an_idle_device_steals():
    """All four items queue where their predecessor ran; two devices share them anyway."""
    problem = Problem.of([[1.0]] * 5, [(0, item) for item in range(1, 5)], kind=[0, 0])
    schedule = find("eager").plan(problem)
    assert sorted(schedule.device[1:].tolist()) == [0, 0, 1, 1]
    assert schedule.makespan == 3.0


def test_locality_stays_with_the_data_until_the_queue_is_longer_than_the_way():
    near = Problem.of([[1.0]] * 3, [(0, 1), (0, 2)], [5.0, 5.0], kind=[0, 0], bandwidth=1.0)
    assert len(set(find("locality").plan(near).device.tolist())) == 1
    far = Problem.of([[8.0]] * 3, [(0, 1), (0, 2)], [5.0, 5.0], kind=[0, 0], bandwidth=1.0)
    assert len(set(find("locality").plan(far).device.tolist())) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"cost": [[1.0], [np.inf]], "edges": []}, "item 1 can run on no device"),
        ({"cost": [[1.0, np.inf]], "edges": [], "pin": [1]}, "pinned to device 1"),
        ({"cost": [[1.0]], "edges": [], "pin": [1]}, "pin must be"),
        ({"cost": [[-1.0]], "edges": []}, "cost must be seconds"),
        ({"cost": [[1.0]], "edges": [], "kind": [1]}, "kind must name"),
        ({"cost": [[1.0]] * 2, "edges": [(0, 1), (0, 1)]}, "a pair twice"),
        ({"cost": [[1.0, 1.0]], "edges": [], "bandwidth": 0.0}, "bandwidth must be above 0"),
        ({"cost": [[1.0, 1.0]], "edges": [], "latency": [1.0, 2.0, 3.0]}, "latency has shape"),
    ],
)
def test_a_wrong_problem_names_what_is_wrong(arguments, said):
    with pytest.raises(PlanError, match=said):
        Problem.of(**arguments)


def test_a_cycle_is_refused():
    with pytest.raises(CycleFound):
        Problem.of([[1.0]] * 2, [(0, 1), (1, 0)])


def benchmark_graphs():
    """The generators of the benchmarks."""
    return runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "task_graphs.py"))


@pytest.mark.parametrize("machine", [(9, 3), (16, 2), (22, 3), (4, 4)])
def test_tiled_cholesky_stays_near_its_bound(machine):
    """With measured kernel times; wanted are 1.10 of the best bound, and HEFT is further from it."""
    problem = benchmark_graphs()["tiled"]("cholesky", 20, cores=machine[0], gpus=machine[1]).problem
    bound = linear_bound(problem.edges, problem.cost, np.bincount(problem.kind))
    assert find("critical-path").plan(problem).makespan <= 1.10 * bound < find("heft").plan(problem).makespan


@pytest.mark.parametrize("kernel", ["cholesky", "lu", "qr"])
def test_what_is_planned_within_kinds_is_what_a_run_does(kernel):
    """No helper takes an item that a run, which waits for nothing, would have given it in an earlier gap."""
    problem = benchmark_graphs()["tiled"](kernel, 10).problem
    order = find("heft").plan(problem).order
    late = simulate(backwards(problem), append(problem, order).device, order[::-1].copy())
    for latest in (None, late.makespan - late.start):
        planned = within_kinds(problem, append(problem, order).device, order, latest)
        check_valid(problem, planned)
        assert simulate(problem, planned.device, planned.order).makespan == pytest.approx(planned.makespan, rel=1e-3)


@pytest.mark.parametrize("machine", ["related", "unrelated", "gpus"])
def test_schedules_within_kinds_of_large_graphs_could_happen(machine):
    """Links of one speed: arguments of an item arrive at several devices at the same moment."""
    problem = benchmark_graphs()["random_instance"](50, "standard", 200, 0.1, machine).problem
    order = find("heft").plan(problem).order
    check_valid(problem, within_kinds(problem, insert(problem, order).device, order))


def test_devices_that_share_a_memory_are_found():
    """Two cores beside two accelerators, of which only the cores reach each other for nothing."""
    near = np.full((4, 4), 8.0)
    near[0, 1] = near[1, 0] = np.inf
    problem = Problem.of([[1.0, 1.0]], [], kind=[0, 0, 1, 1], bandwidth=near)
    assert problem.memory == [0, 0, 2, 3]
    near[1, 2] = 4.0
    assert Problem.of([[1.0, 1.0]], [], kind=[0, 0, 1, 1], bandwidth=near).memory == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", ["layered", "fork-join", "standard", "pipeline"])
def test_random_graphs_are_no_worse_than_heft(shape):
    """Of each shape a few graphs that the benchmark does not use; wanted are 1.05 in the mean and 1.25 at most."""
    make = benchmark_graphs()["random_instance"]
    ratios = []
    for seed in (101, 102):
        for ratio in (0.1, 1.0, 10.0):
            for machine in ("related", "unrelated", "gpus"):
                problem = make(seed, shape, 80, ratio, machine).problem
                ratios.append(find("critical-path").plan(problem).makespan / find("heft").plan(problem).makespan)
    assert np.mean(ratios) <= 1.05
    assert max(ratios) <= 1.25
