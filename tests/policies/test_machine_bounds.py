"""Bounds on machines of several kinds: known values, each other, and what is said without SciPy."""

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
