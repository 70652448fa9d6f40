"""Graphs from and to networkx: a DiGraph of callables becomes a graph, a program becomes a DiGraph."""

from __future__ import annotations

import sys
from typing import Any

import networkx as nx
from plait.errors import GraphError
from plait.graph.edges import RAW, words
from plait.graph.graph import Graph
from plait.graph.hazards import READ, WRITE
from plait.graph.options import NAMES, merged
from plait.graph.program import Program
from plait.graph.region import count, overlaps

_NODE_OPTIONS = tuple(name for name in NAMES if name not in ("name", "outputs", "after"))


def from_networkx(dag: nx.DiGraph[Any], name: str = "graph") -> Graph:
    """Record a DiGraph whose nodes carry ``work=callable``.

    A node's arguments are its predecessors' results, in the order in which its edges were added. Node attributes
    named like item options (``cost``, ``priority``, …) are options; other attributes are ignored. Every node
    without successors is an output, named ``str(node)``.

    Raises GraphError for an undirected graph, a cycle (shown), a self loop, and a node without callable work.
    """
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("plait.") and frame.f_back is not None:
        frame = frame.f_back
    if not isinstance(dag, nx.Graph) or not dag.is_directed():
        raise GraphError(f"from_networkx() takes a networkx.DiGraph, not {type(dag).__name__}")
    for node in dag:
        if dag.has_edge(node, node):
            raise GraphError(f"self loop: node {node!r} has an edge to itself; remove it")
    try:
        order = list(nx.topological_sort(dag))
    except nx.NetworkXUnfeasible:
        cycle = [edge[0] for edge in nx.find_cycle(dag)]
        text = " -> ".join(str(node) for node in [*cycle, cycle[0]])
        raise GraphError(f"cycle: {text}; remove one of these edges") from None
    graph = Graph(name)
    results: dict[Any, Any] = {}
    for node in order:
        attributes = dag.nodes[node]
        if "work" not in attributes:
            raise GraphError(f"node {node!r} carries no work: set dag.nodes[{node!r}]['work'] to a callable")
        if not callable(attributes["work"]) and not isinstance(attributes["work"], str):
            raise GraphError(f"node {node!r}: work={attributes['work']!r} is not callable")
        options = {key: attributes[key] for key in _NODE_OPTIONS if key in attributes}
        label = str(node)
        try:
            chosen = merged(graph._options, {"name": label, **options})
        except GraphError as error:
            raise GraphError(f"node {node!r}: {error}") from None
        arguments = tuple(results[before] for before in dag.pred[node])
        results[node] = graph._record(frame, chosen, attributes["work"], arguments, {})
    for node in order:
        if not dag.succ[node]:
            graph.output(str(node), results[node])
    return graph


def to_networkx(program: Program) -> nx.DiGraph[str]:
    """The program as a frozen DiGraph: node → ``item``, edge → ``hazards`` (a tuple of words) and ``nbytes``.

    ``nbytes`` is what flows along a read-after-write edge, None where a size is not known before the run, else 0.
    """
    dag: nx.DiGraph[str] = nx.DiGraph(name=program.graph.name)
    names = [item.name for item in program.items]
    dag.add_nodes_from(
        (name, {"item": item, "work": item.function}) for name, item in zip(names, program.items, strict=True)
    )
    edges, flows = program.edges, edge_bytes(program)
    ends = zip(edges.source.tolist(), edges.target.tolist(), edges.kinds.tolist(), flows, strict=True)
    for source, target, kinds, nbytes in ends:
        dag.add_edge(names[source], names[target], hazards=words(kinds), nbytes=nbytes)
    frozen: nx.DiGraph[str] = nx.freeze(dag)
    return frozen


def edge_bytes(program: Program) -> list[int | None]:
    """What flows along each edge of the program, as ``nbytes`` of ``to_networkx``."""
    edges, said = program.edges, _said(program)
    return [
        _flow(program, said, source, target) if kinds & RAW else 0
        for source, target, kinds in zip(
            edges.source.tolist(), edges.target.tolist(), edges.kinds.tolist(), strict=True
        )
    ]


def _said(program: Program) -> dict[int, int]:
    """By buffer, the bytes of results of which the ``nbytes`` option tells."""
    return {
        item.first_result + number: item.options.nbytes
        for item in program.items
        if item.options.nbytes is not None and item.first_result >= 0
        for number in range(item.options.outputs)
    }


def _flow(program: Program, said: dict[int, int], source: int, target: int) -> int | None:
    written: dict[int, list[Any]] = {}
    for access in range(int(program.offsets[source]), int(program.offsets[source + 1])):
        if program.access_modes[access] & WRITE:
            written.setdefault(int(program.access_buffers[access]), []).append(program.regions.get(access))
    total = 0
    for access in range(int(program.offsets[target]), int(program.offsets[target + 1])):
        index = int(program.access_buffers[access])
        if not program.access_modes[access] & READ or index not in written:
            continue
        region = program.regions.get(access)
        if not any(a is None or region is None or overlaps(a, region) for a in written[index]):
            continue
        buffer = program.graph.buffer_at(index)
        if buffer.kind == "resource":
            continue
        if region is not None and buffer.dtype is not None:
            total += count(region) * buffer.dtype.itemsize
            continue
        nbytes = buffer.nbytes if buffer.nbytes is not None else said.get(index)
        if nbytes is None:
            return None
        total += nbytes
    return total
