"""A view: a picture that displays itself in a notebook and can be saved; and the views of a graph."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from plait.errors import GraphError
from plait.graph.buffer import Buffer, BufferSlice
from plait.graph.drawing.picture import draw
from plait.graph.drawing.scene import MOST_ENDS, Scene, arrange, arrange_overview, name_stems, work_of
from plait.graph.drawing.svg import escape, script, style_sheet
from plait.graph.edges import Edges, in_topological_order
from plait.graph.hazards import READ, WRITE
from plait.graph.program import Program
from plait.tracebacks import site_place


@dataclass(frozen=True)
class View:
    """A picture as ``svg`` (complete, stands alone) and as ``html`` (with zoom, hover and folding by script).

    Neither needs the network. A notebook shows the HTML; where scripts or HTML are stripped, what is left is the SVG.
    """

    html: str
    svg: str

    def _repr_html_(self) -> str:
        return self.html

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<View: {len(self.html)} characters of HTML; .save(path) writes it>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it: an ``.svg`` file holds the picture, ``.html`` a page of its own. GraphError for any other name."""
        target = Path(path)
        if target.suffix not in (".svg", ".html", ".htm"):
            raise GraphError(f"a picture is saved as .svg or .html, not as {target.name!r}")
        if target.suffix == ".svg":
            target.write_text(self.svg, encoding="utf-8")
            return
        head = '<!DOCTYPE html><html><head><meta charset="utf-8"><title>plait</title></head>'
        target.write_text(f'{head}<body style="margin:0">{self.html}</body></html>', encoding="utf-8")


def part(svg: str, other: str = "", word: str = "") -> str:
    """One picture of a page; a button called ``word`` shows ``other`` instead."""
    spare = f'<template data-word="{escape(word)}">{other}</template>' if other else ""
    return f'<div class="plait-part"><div class="plait-scroll">{svg}</div>{spare}</div>'


def page(parts: Sequence[str]) -> str:
    """Parts as one element with the style sheet and the script."""
    return f'<div class="plait-view"><style>{style_sheet()}</style>{"".join(parts)}<script>{script()}</script></div>'


def graph_view(program: Program, color: str | None, folded: bool | Collection[str] | None) -> View:
    """The picture of a graph, coloured by ``color`` and folded as ``Graph.show`` says."""
    groups = any(item.options.groups for item in program.items)
    color = color or ("group" if groups else "name")
    if color in ("stream", "state"):
        raise GraphError(f"color={color!r}: a graph has none; show a plan or a run, or color by device, group or name")
    categories = item_categories(program.items, color)
    return scene_view(graph_scene(program), categories, color, folded)


def scene_view(scene: Scene, categories: Sequence[str], word: str, folded: Any, fixed: Any = None) -> View:
    """The picture of a scene."""
    svg, shown = scene_part(scene, categories, word, folded, fixed)
    return View(page([shown]), svg)


def scene_part(scene: Scene, categories: Sequence[str], word: str, folded: Any, fixed: Any = None) -> tuple[str, str]:
    """The SVG of a scene, and the part of a page that shows it. The part can be switched to the groups folded or,
    where there are no groups but many items, to an overview."""
    arranged = arrange(scene, folded)
    svg = draw(arranged, categories, word, fixed)
    if folded is None and not arranged.folded:
        if scene.groups:
            return svg, part(svg, draw(arrange(scene, True), categories, word, fixed), "fold groups")
        if len(scene.items) > MOST_ENDS:
            return svg, part(svg, draw(arrange_overview(scene), categories, word, fixed), "overview")
    return svg, part(svg)


def item_categories(items: Sequence[Any], color: str) -> list[str]:
    """Per item, what it is coloured by: ``"device"`` (as asked for), ``"group"`` or ``"name"`` (less numbers)."""
    if color == "device":
        return [item.options.device or "" for item in items]
    if color == "group":
        return [item.options.groups[0] if item.options.groups else "" for item in items]
    if color == "name":
        return name_stems(items)
    raise GraphError(f"color={color!r} is none of 'device', 'stream', 'group', 'state', 'name'")


def graph_scene(program: Program) -> Scene:
    """The scene of a graph as it was recorded."""
    return Scene(
        f"graph {program.graph.name}",
        program.items,
        program.edges,
        lambda index: item_details(program.items[index]),
        *(ends(program) if len(program.items) <= MOST_ENDS else ((), ())),
    )


def ends(program: Program) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs as a ``Scene`` takes them."""
    item_of = np.repeat(np.arange(len(program.items)), np.diff(program.offsets))
    inputs, outputs = [], []
    for name, buffer in program.inputs.items():
        mine = (program.access_buffers == buffer.index) & (program.access_modes & READ != 0)
        readers = set(item_of[mine].tolist())
        first = readers - _behind(program.edges, readers)
        inputs.append((name, f"input {_described(buffer)}", sorted(first)))
    for name, value in program.outputs.items():
        buffer = value.buffer if isinstance(value, BufferSlice) else value
        mine = (program.access_buffers == buffer.index) & (program.access_modes & WRITE != 0)
        writers = set(item_of[mine].tolist())
        last = writers - _before(program.edges, writers)
        outputs.append((name, f"output {name}: {_described(buffer)}", sorted(last)))
    return inputs, outputs


def _behind(edges: Edges, items: set[int]) -> set[int]:
    """What some path leads to from one of ``items``; arrows from an input to those would say nothing new."""
    found: set[int] = set()
    source, target, _ = in_topological_order(edges)
    for before, after in zip(source, target, strict=True):
        if before in items or before in found:
            found.add(after)
    return found


def _before(edges: Edges, items: set[int]) -> set[int]:
    """What some path leads from to one of ``items``."""
    found: set[int] = set()
    source, target, _ = in_topological_order(edges)
    for before, after in zip(reversed(source), reversed(target), strict=True):
        if after in items or after in found:
            found.add(before)
    return found


def item_details(item: Any) -> str:
    """What a tooltip says of an item: what it is, where it was recorded, its options."""
    work = work_of(item)
    lines = [item.name, f"{item.kind}{f' of {work}' if work != item.kind else ''}, recorded at {site_place(item.site)}"]
    options = item.options
    told = {
        "group": " / ".join(options.groups),
        "device": options.device,
        "priority": options.priority,
        "timeout": options.timeout and f"{options.timeout} s",
        "retries": options.retries,
        "cost": options.cost and f"{options.cost} s",
    }
    lines += [f"{name}: {value}" for name, value in told.items() if value]
    return "\n".join(lines)


def _described(buffer: Buffer) -> str:
    shape = "" if buffer.shape is None else f" {buffer.shape}"
    dtype = "" if buffer.dtype is None else f" {buffer.dtype}"
    return f"{buffer.name}{shape}{dtype}"
