"""Bounds on machines of several kinds: known values, each other, and what is said without SciPy."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import PlaitError
from plait.graph import Edges
from plait.graph.machine_bounds import area_bound, area_prices, linear_bound, path_bound, travel_times
from scipy.optimize import linprog


def edges(count, *pairs):
    source, target = zip(*pairs, strict=True) if pairs else ((), ())
    return Edges.of(count, source, target)


def exact_area(cost, count):
    """The linear program that shares items out, as SciPy solves it."""
    items, kinds = cost.shape
    loads = np.zeros((kinds, items * kinds + 1))
    for kind in range(kinds):
        loads[kind, kind : items * kinds : kinds] = cost[:, kind]
        loads[kind, -1] = -count[kind]
    whole = np.kron(np.eye(items), np.ones(kinds))
    solved = linprog(
        np.r_[np.zeros(items * kinds), 1.0],
        A_ub=loads,
        b_ub=np.zeros(kinds),
        A_eq=np.c_[whole, np.zeros(items)],
        b_eq=np.ones(items),
    )
    return solved.fun


@given(
    st.integers(1, 3).flatmap(
        lambda kinds: st.tuples(
            st.lists(st.lists(st.floats(0.1, 100), min_size=kinds, max_size=kinds), min_size=1, max_size=12),
            st.lists(st.integers(1, 9), min_size=kinds, max_size=kinds),
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_the_area_bound_is_that_of_the_linear_program(case):
    cost, count = np.array(case[0]), np.array(case[1])
    exact = exact_area(cost, count)
    assert (1 - 1e-9 if len(count) < 3 else 0.95) * exact <= area_bound(cost, count) <= exact * (1 + 1e-9)


def test_prices_make_the_devices_worth_one():
    bound, prices = area_prices([[4.0, 1.0], [1.0, 1.0]], [2, 1])
    assert prices @ np.array([2, 1]) == pytest.approx(1.0)
    assert bound == pytest.approx(5 / 6, rel=1e-3)


def test_a_path_takes_the_fastest_kinds():
    bound = path_bound(edges(3, (0, 1), (0, 2)), [[4.0, 1.0], [2.0, 5.0], [1.0, 1.0]])
    assert (bound.seconds, bound.items) == (3.0, [0, 1])


def test_a_transfer_that_no_placement_avoids_counts():
    """The first item runs on device 0 only, the second on device 1 only: what flows must cross."""
    seconds = [[1.0, np.inf], [np.inf, 1.0], [1.0, 1.0]]
    delay = np.array([[[0.0, 5.0], [5.0, 0.0]]] * 2)
    heads, tails = travel_times(edges(3, (0, 1), (1, 2)), seconds, delay)
    assert heads.tolist() == [0.0, 6.0, 7.0]
    assert tails.tolist() == [7.0, 1.0, 0.0]


def test_the_linear_program_sees_what_path_and_area_do_not():
    """A chain of two, then four items at once, on two devices of one kind: 2, and 2 more for the work behind."""
    graph = edges(6, (0, 1), (1, 2), (1, 3), (1, 4), (1, 5))
    cost = np.ones((6, 1))
    assert path_bound(graph, cost).seconds == 3.0
    assert area_bound(cost, [2]) == pytest.approx(3.0)
    assert linear_bound(graph, cost, [2]) == pytest.approx(4.0, rel=1e-5)


@st.composite
def small(draw):
    """Four items at most on two kinds of devices: costs, pairs and counts of devices."""
    items = draw(st.integers(1, 4))
    seconds = st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0])
    cost = [[draw(seconds), draw(seconds | st.just(np.inf))] for _ in range(items)]
    pairs = [(a, b) for a in range(items) for b in range(a + 1, items)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return cost, chosen, [draw(st.integers(1, 2)), draw(st.integers(1, 2))]


def shortest(cost, pairs, count):
    """The least makespan of all orders and placements."""
    kind = [0] * count[0] + [1] * count[1]
    best = np.inf
    for order in itertools.permutations(range(len(cost))):
        if any(order.index(a) > order.index(b) for a, b in pairs):
            continue
        for device in itertools.product(range(len(kind)), repeat=len(cost)):
            free, end = [0.0] * len(kind), [0.0] * len(cost)
            for item in order:
                there = device[item]
                begin = max([free[there], *(end[a] for a, b in pairs if b == item)])
                end[item] = free[there] = begin + cost[item][kind[there]]
            best = min(best, max(end))
    return best


@given(small())
@settings(max_examples=80, deadline=None)
def test_no_bound_is_above_the_shortest_schedule(case):
    cost, pairs, count = case
    least = shortest(cost, pairs, count) * (1 + 1e-9)
    graph = edges(len(cost), *pairs)
    assert path_bound(graph, cost).seconds <= least
    assert area_bound(cost, count) <= least
    assert linear_bound(graph, cost, count) <= least


def test_the_end_of_a_schedule_is_looked_at_closely():
    """Many items at once and a chain of long ones behind them: only windows of few items see that devices idle."""
    chain = [(k, k + 1) for k in range(200, 203)]
    graph = edges(204, *((k, 200) for k in range(200)), *chain)
    cost = np.r_[np.ones(200), np.full(4, 10.0)][:, None]
    assert linear_bound(graph, cost, [4]) == pytest.approx(50.0 + 40.0, rel=1e-5)


def test_large_graphs_share_variables_and_stay_below():
    count = 6500
    graph = edges(count, *((k, k + 1) for k in range(0, count - 1, 2)))
    cost = np.tile([[3.0, 1.0], [1.0, 1.0]], (count // 2, 1))
    bound = linear_bound(graph, cost, [2, 1])
    assert area_bound(cost, [2, 1]) * (1 - 1e-3) <= bound <= cost.min(axis=1).sum()


def test_without_scipy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(PlaitError, match=r"needs SciPy: pip install 'plait\[bounds\]'"):
        linear_bound(edges(1), [[1.0]], [1])
    assert area_bound([[1.0, 2.0, 3.0]], [1, 1, 1]) > 0


@pytest.mark.parametrize("wrong", [[1.0], [[]], [[-1.0]], [[np.inf, np.inf]]])
def test_wrong_costs_are_refused(wrong):
    with pytest.raises(ValueError, match="cost"):
        area_bound(wrong, [1, 1])
