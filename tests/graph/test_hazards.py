"""Hazards: every order that respects the derived edges means what program order means."""

from __future__ import annotations

import time
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices
from plait.graph.edges import ORDER, RAW, WAR, WAW, Edges, words
from plait.graph.hazards import READ, UPDATE, WRITE, derive
from plait.graph.reduce import transitive_reduction
from plait.graph.region import Region, normalise, overlaps

SHAPES = ((12,), (5, 6), (64,))
Access = tuple[int, int, Any]


def flat(program: list[list[Access]]) -> tuple[list[int], list[int], list[int], dict[int, Region]]:
    offsets, buffers, modes = [0], [], []
    regions: dict[int, Region] = {}
    for item in program:
        for buffer, mode, key in item:
            region = None if key is None else normalise(key, SHAPES[buffer])
            if region is not None:
                regions[len(buffers)] = region
            buffers.append(buffer)
            modes.append(mode)
        offsets.append(len(buffers))
    return offsets, buffers, modes, regions


def pairs(edges: Edges) -> dict[tuple[int, int], int]:
    return {(a, b): k for a, b, k in zip(edges.source.tolist(), edges.target.tolist(), edges.kinds, strict=True)}


@st.composite
def programs(draw: st.DrawFn) -> list[list[Access]]:
    def access() -> Access:
        buffer = draw(st.integers(0, len(SHAPES) - 1))
        key = draw(st.none() | basic_indices(SHAPES[buffer]))
        return buffer, draw(st.sampled_from((READ, WRITE, UPDATE))), key

    return [[access() for _ in range(draw(st.integers(0, 3)))] for _ in range(draw(st.integers(0, 14)))]


def execute(program: list[list[Access]], order: list[int]) -> list[Any]:
    """Each item hashes what it reads into what it writes, so that any other order of a conflict shows."""
    arrays = [np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape) for shape in SHAPES]
    for item in order:
        total = np.uint64(item + 1)
        for buffer, mode, key in program[item]:
            if mode & READ:
                seen = np.asarray(arrays[buffer][... if key is None else key]).ravel()
                weights = np.arange(1, len(seen) + 1, dtype=np.uint64)
                total = np.bitwise_xor(total, (seen * weights).sum(dtype=np.uint64))
        for buffer, mode, key in program[item]:
            if mode & WRITE:
                stamp = (int(total) * 0x9E3779B97F4A7C15 + item) & 0xFFFFFFFFFFFFFFFF
                arrays[buffer][... if key is None else key] = np.uint64(stamp)
    return arrays


def any_order(edges: Edges, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    offsets, indices = edges.successors()
    waiting = edges.in_degree()
    ready = edges.sources().tolist()
    order = []
    while ready:
        node = ready.pop(int(rng.integers(len(ready))))
        order.append(node)
        for successor in indices[offsets[node] : offsets[node + 1]].tolist():
            waiting[successor] -= 1
            if not waiting[successor]:
                ready.append(successor)
    return order


@settings(max_examples=300, deadline=None)
@given(programs(), st.integers(0, 2**32 - 1))
def test_any_order_that_respects_the_edges_gives_the_same_bytes(program: list[list[Access]], seed: int) -> None:
    edges = derive(*flat(program))
    expected = execute(program, list(range(len(program))))
    for graph in (edges, transitive_reduction(edges)):
        order = any_order(graph, seed)
        assert len(order) == len(program)
        for got, want in zip(execute(program, order), expected, strict=True):
            assert got.tobytes() == want.tobytes()


@settings(max_examples=300, deadline=None)
@given(programs())
def test_edges_are_conflicts_and_imply_all_conflicts(program: list[list[Access]]) -> None:
    offsets, buffers, modes, regions = flat(program)
    conflicts = {
        (i, j)
        for j in range(len(program))
        for i in range(j)
        for a in range(offsets[i], offsets[i + 1])
        for b in range(offsets[j], offsets[j + 1])
        if buffers[a] == buffers[b] and (modes[a] | modes[b]) & WRITE and overlaps(regions.get(a), regions.get(b))
    }
    edges = derive(offsets, buffers, modes, regions)
    assert set(pairs(edges)) <= conflicts
    dag = nx.DiGraph(list(pairs(edges)))
    dag.add_nodes_from(range(len(program)))
    assert conflicts <= set(nx.transitive_closure(dag).edges)


def test_kinds() -> None:
    whole: list[list[Access]] = [
        [(0, WRITE, None)],
        [(0, READ, None)],
        [(0, UPDATE, None)],
        [(0, WRITE, None)],
    ]
    expected = {(0, 1): RAW, (0, 2): RAW | WAW, (1, 2): WAR, (2, 3): WAR | WAW}
    assert pairs(derive(*flat(whole))) == expected
    sliced: list[list[Access]] = [[(0, mode, slice(0, 5)) for _, mode, _ in item] for item in whole]
    assert pairs(derive(*flat(sliced))) == expected
    assert words(RAW | WAW) == ("read-after-write", "write-after-write")


def test_overlapping_updates_by_slice() -> None:
    regions = {0: ((0, 40, 1),), 1: ((40, 80, 1),), 2: ((20, 60, 1),)}
    edges = derive([0, 1, 2, 3], [0, 0, 0], [UPDATE] * 3, regions)
    assert list(pairs(edges)) == [(0, 2), (1, 2)]
    assert edges.sources().tolist() == [0, 1] and edges.sinks().tolist() == [2]


def test_an_item_has_no_edge_to_itself_and_explicit_order_is_kept() -> None:
    assert not len(derive([0, 2], [0, 0], [READ, WRITE]))
    assert not len(derive([0, 2], [0, 0], [READ, WRITE], {0: ((0, 4, 1),), 1: ((2, 6, 1),)}))
    assert pairs(derive([0, 1, 2], [0, 0], [WRITE, READ], {}, [(0, 1)])) == {(0, 1): RAW | ORDER}
    assert pairs(derive([0, 0, 0], [], [], {}, [(1, 0)])) == {(1, 0): ORDER}


def chain(regions: list[Region], readers: list[Region]) -> float:
    both = regions + readers
    modes = [WRITE] * len(regions) + [READ] * len(readers)
    began = time.process_time()
    derive(range(len(both) + 1), [0] * len(both), modes, dict(enumerate(both)))
    return time.process_time() - began


def test_live_slices_are_not_searched_one_by_one() -> None:
    """Eight times the tiles take about eight times as long; a scan of all of them would take 64 times."""

    def tiles(n: int) -> float:
        return chain(
            [((i * 4, i * 4 + 4, 1),) for i in range(n)],
            [((max(i * 4 - 1, 0), i * 4 + 5, 1),) for i in range(n)],
        )

    def columns(n: int) -> float:
        own: list[Region] = [((i, i + 10 * n + 1, n),) for i in range(n)]
        return chain(own, own)

    for work in (tiles, columns):
        assert work(8000) < 30 * max(work(1000), 1e-3)
