"""Analysis: the shape of a graph and the time of its paths, as pure functions on flat arrays.

Costs and communication are float64 seconds (any unit will do), ``cost`` per node (shape (count,)), ``comm``
per edge (shape (edges,)), in the order of ``edges``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from plait.graph.edges import Edges, in_topological_order, levels, topological_order

__all__ = [
    "critical_path",
    "descendant_counts",
    "downward_rank",
    "levels",
    "slack",
    "upward_rank",
    "width",
]

Floats = NDArray[np.float64]


def width(edges: Edges) -> int:
    """The largest number of nodes on one level (see ``levels``): a lower bound of the largest antichain, and
    so of how many items can ever be in flight at once."""
    return int(np.bincount(levels(edges)).max()) if edges.count else 0


def upward_rank(edges: Edges, cost: ArrayLike, comm: ArrayLike | None = None) -> Floats:
    """The longest path from each node to the end, its own cost included: HEFT's upward rank (Topcuoglu,
    Hariri, Wu, IEEE TPDS 2002). Shape (count,)."""
    own = _costs(cost, edges.count)
    source, target, permutation = in_topological_order(edges)
    rank: list[float] = own.tolist()
    costs: list[float] = own.tolist()
    lags = _lags(comm, edges, permutation)
    for before, after, lag in zip(reversed(source), reversed(target), reversed(lags), strict=True):
        length = costs[before] + lag + rank[after]
        if length > rank[before]:  # noqa: PLR1730  (max() is three times as slow here)
            rank[before] = length
    return np.array(rank, dtype=np.float64)


def downward_rank(edges: Edges, cost: ArrayLike, comm: ArrayLike | None = None) -> Floats:
    """The longest path from the start to each node, its own cost excluded: the earliest time it can start
    with unbounded workers. Shape (count,)."""
    source, target, permutation = in_topological_order(edges)
    rank = [0.0] * edges.count
    costs: list[float] = _costs(cost, edges.count).tolist()
    lags = _lags(comm, edges, permutation)
    for before, after, lag in zip(source, target, lags, strict=True):
        length = rank[before] + costs[before] + lag
        if length > rank[after]:  # noqa: PLR1730  (max() is three times as slow here)
            rank[after] = length
    return np.array(rank, dtype=np.float64)


def critical_path(edges: Edges, cost: ArrayLike, comm: ArrayLike | None = None) -> tuple[float, list[int]]:
    """``(length, items)`` of a longest path, from a source to a sink; the smallest ids where several tie."""
    if not edges.count:
        return 0.0, []
    rank = upward_rank(edges, cost, comm)
    lag = np.zeros(len(edges)) if comm is None else np.asarray(comm, dtype=np.float64)
    order = np.argsort(edges.source, kind="stable")
    offsets, indices = edges.successors()
    sources = edges.sources()
    node = int(sources[np.argmax(rank[sources])])
    path = [node]
    while offsets[node] < offsets[node + 1]:
        out = slice(offsets[node], offsets[node + 1])
        node = int(indices[out][np.argmax(lag[order[out]] + rank[indices[out]])])
        path.append(node)
    return float(rank[path[0]]), path


def slack(edges: Edges, cost: ArrayLike, comm: ArrayLike | None = None) -> Floats:
    """How much later than at its earliest each node can start without a longer whole; 0 (to rounding) on a
    critical path. Shape (count,)."""
    if not edges.count:
        return np.zeros(0)
    through = downward_rank(edges, cost, comm) + upward_rank(edges, cost, comm)
    spare: Floats = np.maximum(through.max() - through, 0.0)
    return spare


def descendant_counts(edges: Edges) -> NDArray[np.int64]:
    """How many nodes can be reached from each: int64, shape (count,). Exact, by bitsets of count**2 / 8 bytes
    in all, so for graphs of some ten thousand nodes."""
    offsets, indices = (array.tolist() for array in edges.successors())
    reach = [0] * edges.count
    for node in reversed(topological_order(edges).tolist()):
        found = 0
        for successor in indices[offsets[node] : offsets[node + 1]]:
            found |= reach[successor] | 1 << successor
        reach[node] = found
    return np.array([found.bit_count() for found in reach], dtype=np.int64)


def _costs(cost: ArrayLike, count: int) -> Floats:
    costs = np.asarray(cost, dtype=np.float64)
    if costs.shape not in ((), (count,)):
        raise ValueError(f"cost has shape {costs.shape}; there are {count} nodes")
    if bool((costs < 0).any()):
        raise ValueError("cost is negative")
    spread: Floats = np.broadcast_to(costs, (count,))
    return spread


def _lags(comm: ArrayLike | None, edges: Edges, permutation: NDArray[np.int64] | slice) -> list[float]:
    if comm is None:
        return [0.0] * len(edges)
    lags = np.broadcast_to(np.asarray(comm, dtype=np.float64), (len(edges),))
    listed: list[float] = lags[permutation].tolist()
    return listed
