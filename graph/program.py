"""The checked, immutable snapshot of a graph: flat arrays that plans are compiled from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from plait.errors import GraphError
from plait.graph.buffer import INPUT, Buffer, BufferSlice
from plait.graph.edges import Edges
from plait.graph.hazards import derive
from plait.graph.item import WorkItem
from plait.graph.reduce import transitive_reduction
from plait.graph.region import Region

if TYPE_CHECKING:
    from plait.graph.graph import Graph


@dataclass(frozen=True)
class Program:
    """A graph as it stood at ``version``: items and buffers by index, their accesses, and the reduced edges.

    ``declared`` are the buffers that are no results: inputs, constants, a run's own buffers, named resources.
    """

    graph: Graph
    version: tuple[int, int, int]
    items: Sequence[WorkItem]
    buffer_count: int
    declared: Sequence[Buffer]
    outputs: Mapping[str, Buffer | BufferSlice]
    offsets: npt.NDArray[np.int64]
    access_buffers: npt.NDArray[np.int64]
    access_modes: npt.NDArray[np.int8]
    regions: Mapping[int, Region]
    mutated: frozenset[int]
    group_limits: Mapping[str, int | None]
    edges: Edges

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Item index by name."""
        return {item.name: item.index for item in self.items}

    @cached_property
    def inputs(self) -> dict[str, Buffer]:
        """The buffers to be bound when run, by name."""
        return {buffer.name: buffer for buffer in self.declared if buffer.kind is INPUT}


def snapshot(graph: Graph) -> Program:
    """Check ``graph`` and freeze what it holds now; GraphError names items and the lines that recorded them."""
    offsets = np.array(graph.offsets, dtype=np.int64)
    buffers = np.array(graph.access_buffers, dtype=np.int64)
    modes = np.array(graph.access_modes, dtype=np.int8)
    _check_names(graph)
    edges = derive(offsets, buffers, modes, graph.regions, graph.explicit)
    return Program(
        graph=graph,
        version=graph.version,
        items=tuple(graph.items),
        buffer_count=len(graph.buffer_items),
        declared=tuple(graph.declared.values()),
        outputs=dict(graph.outputs),
        offsets=offsets,
        access_buffers=buffers,
        access_modes=modes,
        regions=dict(graph.regions),
        mutated=frozenset(graph.mutated),
        group_limits=dict(graph.group_limits),
        edges=transitive_reduction(edges),
    )


def _check_names(graph: Graph) -> None:
    """An explicit name may look like another item's automatic one (``add#3``); find the clash before it confuses."""
    for item in graph.items:
        name = item.options.name
        if name is None or "#" not in name:
            continue
        number = name.rpartition("#")[2]
        if number.isdecimal() and int(number) < len(graph.items):
            other = graph.items[int(number)]
            if other is not item and other.name == name:
                raise GraphError(
                    f"duplicate name {name!r}: item recorded at {item.site} and item recorded at {other.site}"
                )
