"""What to do: work items, buffers, hazards, analysis. Start reading at ``graph.py``."""

from plait.graph.access import Uses, read, update, uses, write
from plait.graph.buffer import BUFFER, CONSTANT, INPUT, RESOURCE, RESULT, Access, Buffer, BufferSlice
from plait.graph.edges import Edges
from plait.graph.graph import Graph
from plait.graph.item import BARRIER, CALL, COPY, FILL, WorkItem
from plait.graph.program import Program
from plait.graph.work import Work, work

__all__ = [
    "BARRIER",
    "BUFFER",
    "CALL",
    "CONSTANT",
    "COPY",
    "FILL",
    "INPUT",
    "RESOURCE",
    "RESULT",
    "Access",
    "Buffer",
    "BufferSlice",
    "Edges",
    "Graph",
    "Program",
    "Uses",
    "Work",
    "WorkItem",
    "read",
    "update",
    "uses",
    "work",
    "write",
]
