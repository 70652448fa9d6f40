"""Fold: many items as one box, by group or into an overview, such that the boxes are a DAG again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from plait.graph.edges import Edges, in_topological_order, levels

MOST_BANDS, MOST_BOXES = 24, 120

Longs = NDArray[np.int64]


def contract(edges: Edges, box: Longs) -> Edges:
    """The edges between boxes, where item i lies in ``box[i]`` (int64, shape (count,), numbers from 0)."""
    source, target = box[edges.source], box[edges.target]
    between = source != target
    return Edges.of(int(box.max(initial=-1)) + 1, source[between], target[between], edges.kinds[between])


def fold(edges: Edges, keys: Sequence[Hashable]) -> Longs:
    """The box of each item (int64, shape (count,)): items of one key share one.

    Keys whose items run to and fro, as the forward and backward groups of a training loop do, would make a cycle of
    boxes; those are split by how often a path has changed its key, so that each turn has a box of its own.
    """
    box = _numbered(keys)
    tangled = _tangled(contract(edges, box))
    if tangled:
        turns = _turns(edges, box.tolist())
        box = _numbered([(key, turn if key in tangled else 0) for key, turn in zip(box.tolist(), turns, strict=True)])
    return box


def overview(edges: Edges, keys: Sequence[str]) -> Longs:
    """The box of each item (int64, shape (count,)): at most about ``MOST_BOXES``, by level and key.

    Levels are joined to bands. The rarer keys of a band share a box, and so do those that wait for one another.
    """
    level = levels(edges)
    depth = int(level.max(initial=0)) + 1
    bands = min(depth, MOST_BANDS)
    band = level.astype(np.int64) * bands // depth
    number = _numbered(keys)
    pair = band * (int(number.max(initial=0)) + 1) + number
    found, inverse, sizes = np.unique(pair, return_inverse=True, return_counts=True)
    room = max(1, MOST_BOXES // bands)
    representative = np.arange(len(found))
    band_of = found // (int(number.max(initial=0)) + 1)
    for each in range(bands):
        members = np.flatnonzero(band_of == each)
        if len(members) > room:
            by_size = members[np.argsort(-sizes[members], kind="stable")]
            representative[by_size[room - 1 :]] = by_size[room - 1]
    box = _numbered(representative[inverse.reshape(-1)].tolist())
    joined = contract(edges, box)
    component = np.empty(joined.count, dtype=np.int64)
    for index, members_ in enumerate(_components(joined)):
        component[list(members_)] = index
    return _numbered(component[box].tolist())


def box_names(box: Longs, keys: Sequence[str]) -> list[str]:
    """What each box holds, in words: its only key, or its most frequent ones."""
    counts: list[Counter[str]] = [Counter() for _ in range(int(box.max(initial=-1)) + 1)]
    for index, key in zip(box.tolist(), keys, strict=True):
        counts[index][key] += 1
    names = []
    for counter in counts:
        common = [name for name, _ in counter.most_common(2)]
        more = len(counter) - len(common)
        names.append(", ".join(common) + (f" +{more}" if more else ""))
    return names


def _numbered(keys: Sequence[Hashable]) -> Longs:
    """Numbers from 0 in the order in which keys first come."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _components(edges: Edges) -> list[set[int]]:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(edges.count))
    graph.add_edges_from(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
    return [set(each) for each in nx.strongly_connected_components(graph)]


def _tangled(edges: Edges) -> set[int]:
    if bool((edges.source < edges.target).all()):
        return set()
    return {node for component in _components(edges) if len(component) > 1 for node in component}


def _turns(edges: Edges, key: list[int]) -> list[int]:
    """How often a path to each item changed its key, at most. Along an edge it never falls, and between keys it
    rises; so boxes that are split by it cannot wait for one another."""
    turn = [0] * edges.count
    source, target, _ = in_topological_order(edges)
    for before, after in zip(source, target, strict=True):
        turn[after] = max(turn[after], turn[before] + (key[before] != key[after]))
    return turn
