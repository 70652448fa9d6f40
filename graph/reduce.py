"""Transitive reduction: drop the edges that a longer path already implies.

The transitive reduction of a DAG is unique (Aho, Garey, Ullman, SIAM J. Comput. 1972). Up to ``EXACT`` nodes
it is found exactly, with ancestor bitsets. Beyond, each target is searched backwards within a budget linear
in the size of the graph; an edge whose redundancy does not show within it is kept, which costs a wait and
breaks nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from plait.graph.edges import Edges, levels, topological_order

EXACT = 16_384
"""Up to this many nodes the reduction is exact: at most ``EXACT**2 / 8`` bytes of bitsets (32 MiB)."""
PER_TARGET = 128
"""Beyond, the edges that are looked at per target, and 3 times nodes + edges over all."""


def transitive_reduction(edges: Edges, *, exact_limit: int = EXACT, per_target: int = PER_TARGET) -> Edges:
    """The edges without those that a longer path implies; the kinds of what stays are unchanged.

    Raises CycleFound for a graph with a cycle.
    """
    level = levels(edges)
    candidates = _candidates(edges, level)
    if not candidates.any():
        return edges
    if edges.count <= exact_limit:
        redundant = _exact(edges, candidates)
    else:
        redundant = _bounded(edges, level, candidates, per_target)
    return edges.keep(~redundant)


def _candidates(edges: Edges, level: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Edges that may be redundant: they skip a level, leave a node with other ways out, enter one with other
    ways in."""
    skips = level[edges.target] - level[edges.source] > 1
    return skips & (edges.out_degree()[edges.source] > 1) & (edges.in_degree()[edges.target] > 1)


def _exact(edges: Edges, candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """By ancestor bitsets: an edge u -> v is redundant if u is an ancestor of another predecessor of v."""
    offsets, indices = (array.tolist() for array in edges.predecessors())
    maybe = candidates.tolist()
    redundant = np.zeros(len(edges), dtype=np.bool_)
    above = [0] * edges.count
    for node in topological_order(edges).tolist():
        start, stop = offsets[node], offsets[node + 1]
        behind = 0
        for predecessor in indices[start:stop]:
            behind |= above[predecessor]
        for edge in range(start, stop):
            if maybe[edge] and behind >> indices[edge] & 1:
                redundant[edge] = True
        for predecessor in indices[start:stop]:
            behind |= 1 << predecessor
        above[node] = behind
    return redundant


def _bounded(
    edges: Edges, level: NDArray[np.int32], candidates: NDArray[np.bool_], per_target: int
) -> NDArray[np.bool_]:
    """By a breadth-first search back from each target, through nodes deeper than its shallowest candidate."""
    offsets, indices = (array.tolist() for array in edges.predecessors())
    depth = level.tolist()
    redundant = np.zeros(len(edges), dtype=np.bool_)
    budget = 3 * (edges.count + len(edges))
    chosen = np.flatnonzero(candidates)
    targets, first = np.unique(edges.target[chosen], return_index=True)
    groups = np.append(first, len(chosen)).tolist()
    listed = chosen.tolist()
    for at, node in enumerate(targets.tolist()):
        mine = {indices[edge]: edge for edge in listed[groups[at] : groups[at + 1]]}
        floor = min([depth[source] for source in mine])
        frontier = [p for p in indices[offsets[node] : offsets[node + 1]] if depth[p] > floor]
        seen = set(frontier)
        left = per_target
        for reached in frontier:  # grows while it is walked
            for predecessor in indices[offsets[reached] : offsets[reached + 1]]:
                left -= 1
                if predecessor in mine:
                    redundant[mine.pop(predecessor)] = True
                if depth[predecessor] > floor and predecessor not in seen:
                    seen.add(predecessor)
                    frontier.append(predecessor)
            if left <= 0 or not mine:
                break
        budget -= per_target - left
        if budget <= 0:
            break
    return redundant
