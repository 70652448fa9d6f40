"""A program as text that draws itself: a Mermaid flowchart."""

from __future__ import annotations

from plait.graph.edges import words
from plait.graph.item import BARRIER, COPY, FILL
from plait.graph.program import Program

_SHAPES = {COPY: ("[/", "/]"), FILL: ("[/", "/]"), BARRIER: ("{{", "}}")}


def to_mermaid(program: Program) -> str:
    """A Mermaid flowchart: a box per item, a slanted one per copy; dotted edges where no data flows."""
    lines = ["flowchart LR"]
    for item in program.items:
        left, right = _SHAPES.get(item.kind, ("[", "]"))
        label = item.name.replace('"', "'").replace("#", "#35;")
        lines.append(f'  n{item.index}{left}"{label}"{right}')
    edges = program.edges
    for source, target, kinds in zip(edges.source.tolist(), edges.target.tolist(), edges.kinds.tolist(), strict=True):
        flows = "read-after-write" in words(kinds)
        lines.append(f"  n{source} {'-->' if flows else '-.->'} n{target}")
    return "\n".join(lines)
