"""The reduction is networkx's where it is exact, and keeps the meaning where it is bounded."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plait.graph.edges import ORDER, RAW, CycleFound, Edges, find_cycle, levels, topological_order
from plait.graph.reduce import transitive_reduction


@st.composite
def dags(draw: st.DrawFn) -> Edges:
    """Random DAGs whose node ids are not in topological order."""
    count = draw(st.integers(1, 14))
    place = np.array(draw(st.permutations(range(count))))
    chosen = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=50))
    ends = np.array([(a, b) for a, b in chosen if a < b], dtype=int).reshape(-1, 2)
    return Edges.of(count, place[ends[:, 0]], place[ends[:, 1]])


def to_networkx(edges: Edges) -> nx.DiGraph:
    dag = nx.DiGraph(list(zip(edges.source.tolist(), edges.target.tolist(), strict=True)))
    dag.add_nodes_from(range(edges.count))
    return dag


@given(dags())
def test_equal_to_networkx(edges: Edges) -> None:
    expected = set(nx.transitive_reduction(to_networkx(edges)).edges)
    assert set(to_networkx(transitive_reduction(edges)).edges) == expected
    # a large enough budget finds as much without bitsets
    assert set(to_networkx(transitive_reduction(edges, exact_limit=0, per_target=1000)).edges) >= expected


@given(dags(), st.integers(1, 6))
def test_a_small_budget_keeps_the_closure(edges: Edges, budget: int) -> None:
    reduced = transitive_reduction(edges, exact_limit=0, per_target=budget)
    before, after = (nx.transitive_closure(to_networkx(graph)) for graph in (edges, reduced))
    assert set(before.edges) == set(after.edges)


def test_the_bounded_search_finds_short_detours() -> None:
    n = 1000
    near = [(i, i + 1) for i in range(n - 1)]
    skip = [(i, i + 2) for i in range(n - 2)]
    source, target = zip(*near, *skip, strict=True)
    reduced = transitive_reduction(Edges.of(n, source, target), exact_limit=0)
    assert set(to_networkx(reduced).edges) == set(near)


def test_kinds_of_what_stays_are_kept() -> None:
    edges = Edges.of(3, [0, 1, 0, 0], [1, 2, 2, 1], [RAW, RAW, RAW, ORDER])
    assert transitive_reduction(edges).kinds.tolist() == [RAW | ORDER, RAW]


@given(dags())
def test_orders_and_levels_agree_with_networkx(edges: Edges) -> None:
    place = np.argsort(topological_order(edges))
    assert (place[edges.source] < place[edges.target]).all()
    level = levels(edges)
    for depth, nodes in enumerate(nx.topological_generations(to_networkx(edges))):
        assert {int(level[node]) for node in nodes} == {depth}


@given(st.integers(1, 9), st.data())
def test_a_cycle_is_found_if_there_is_one(count: int, data: st.DataObject) -> None:
    node = st.integers(0, count - 1)
    ends = data.draw(st.lists(st.tuples(node, node), max_size=14))
    dag = nx.DiGraph(ends)
    cycle = find_cycle(count, (a for a, _ in ends), (b for _, b in ends))
    assert (cycle is None) == nx.is_directed_acyclic_graph(dag)
    if cycle is not None:
        assert len(set(cycle)) == len(cycle)
        assert all(dag.has_edge(a, b) for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True))
        with pytest.raises(CycleFound):
            topological_order(Edges.of(count, [a for a, _ in ends], [b for _, b in ends]))


def test_a_long_chain_needs_no_recursion() -> None:
    n = 200_000
    edges = Edges.of(n, np.arange(n - 1)[::-1] + 1, np.arange(n - 1)[::-1])
    assert levels(edges).max() == n - 1
    assert len(transitive_reduction(edges)) == n - 1
    assert find_cycle(n, np.arange(n), (np.arange(n) + 1) % n) == list(range(n))
