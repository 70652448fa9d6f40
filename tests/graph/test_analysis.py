"""The analyses agree with networkx's and with plain definitions."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plait.graph import analysis, bounds
from plait.graph.edges import Edges


@st.composite
def weighted(draw: st.DrawFn) -> tuple[nx.DiGraph, Edges, list[int], list[int]]:
    """A random DAG (ids not in topological order), a cost per node, a cost per edge."""
    count = draw(st.integers(1, 12))
    place = draw(st.permutations(range(count)))
    node = st.integers(0, count - 1)
    chosen = sorted(draw(st.sets(st.tuples(node, node), max_size=40)))
    ends = [(place[a], place[b]) for a, b in chosen if a < b]
    edges = Edges.of(count, [a for a, _ in ends], [b for _, b in ends])
    numbers = st.integers(0, 9)
    cost = draw(st.lists(numbers, min_size=count, max_size=count))
    comm = draw(st.lists(numbers, min_size=len(edges), max_size=len(edges)))
    dag = nx.DiGraph()
    dag.add_nodes_from(range(count))
    for a, b, lag in zip(edges.source.tolist(), edges.target.tolist(), comm, strict=True):
        dag.add_edge(a, b, weight=cost[a] + lag)
    for sink in range(count):
        dag.add_edge(sink, count, weight=cost[sink])  # a common end pays the last node's own cost
    return dag, edges, cost, comm


@given(weighted())
def test_paths_agree_with_networkx(case: tuple[nx.DiGraph, Edges, list[int], list[int]]) -> None:
    dag, edges, cost, comm = case
    length, path = analysis.critical_path(edges, cost, comm)
    assert length == nx.dag_longest_path_length(dag)
    assert length == nx.path_weight(dag, [*path, edges.count], "weight")
    up = analysis.upward_rank(edges, cost, comm)
    down = analysis.downward_rank(edges, cost, comm)
    for node in range(edges.count):
        below = dag.subgraph(nx.descendants(dag, node) | {node})
        assert up[node] == nx.dag_longest_path_length(below)
        above = dag.subgraph(nx.ancestors(dag, node) | {node})
        assert down[node] == nx.dag_longest_path_length(above)
    slack = analysis.slack(edges, cost, comm)
    assert (slack[path] == 0).all()
    assert (slack == length - up - down).all()


@given(weighted())
def test_width_and_descendants_agree_with_networkx(
    case: tuple[nx.DiGraph, Edges, list[int], list[int]],
) -> None:
    dag, edges, cost, _ = case
    dag.remove_node(edges.count)
    assert analysis.width(edges) == max(len(nodes) for nodes in nx.topological_generations(dag))
    counts = analysis.descendant_counts(edges)
    assert counts.tolist() == [len(nx.descendants(dag, node)) for node in range(edges.count)]
    low = bounds.lower_bounds(edges, cost, 2)
    assert low.critical_path == analysis.critical_path(edges, cost)[0]
    assert low.work == sum(cost) / 2 and low.best == max(low)


def test_a_diamond() -> None:
    edges = Edges.of(4, [0, 0, 1, 2], [1, 2, 3, 3])
    assert analysis.descendant_counts(edges).tolist() == [3, 1, 1, 0]
    assert analysis.critical_path(edges, [1.0, 5.0, 2.0, 1.0]) == (7.0, [0, 1, 3])
    assert analysis.slack(edges, [1.0, 5.0, 2.0, 1.0]).tolist() == [0, 0, 3, 0]
    assert analysis.critical_path(Edges.of(0, [], []), []) == (0.0, [])
    with pytest.raises(ValueError, match="negative"):
        analysis.upward_rank(edges, [1, 1, -1, 1])
    with pytest.raises(ValueError, match="workers"):
        bounds.lower_bounds(edges, 1.0, 0)


@given(st.data())
def test_live_bytes_agree_with_the_definition(data: st.DataObject) -> None:
    items, count = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 6))
    ids = st.integers(0, count - 1)
    uses = [data.draw(st.lists(ids, max_size=3)) for _ in range(items)]
    order = data.draw(st.permutations(range(items)))
    keep, given_ = (sorted(data.draw(st.sets(ids))) for _ in range(2))
    sizes = data.draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    offsets = np.concatenate(([0], np.cumsum([len(use) for use in uses]))).tolist()
    flat = [buffer for use in uses for buffer in use]

    used = [{step for step, item in enumerate(order) if b in uses[item]} for b in range(count)]
    for b in range(count):
        if b in given_:
            used[b].add(0)
        if b in keep and used[b]:
            used[b].add(items - 1)
    expected = [{b for b in range(count) if used[b] and min(used[b]) <= s <= max(used[b])} for s in range(items)]
    got = bounds.live_bytes(order, offsets, flat, sizes, keep=keep, given=given_)
    assert got.during.tolist() == [sum(sizes[b] for b in live) for live in expected]
    after = [sum(sizes[b] for b in live if max(used[b]) > s or b in keep) for s, live in enumerate(expected)]
    assert got.after.tolist() == after
    assert bounds.peak_bytes(order, offsets, flat, sizes, keep=keep, given=given_) == max(got.during)
    first, last = bounds.lifetimes(order, offsets, flat, count, keep=keep, given=given_)
    assert list(bounds.live_sets(first, last, items)) == expected
