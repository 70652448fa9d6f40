"""A scene: what is drawn of a program, and its boxes laid out once, so that it can be coloured again and again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from plait.errors import GraphError
from plait.graph.drawing.fold import Longs, box_names, contract, fold, overview
from plait.graph.drawing.layout import Layout, curve, lay_out
from plait.graph.drawing.svg import shortened, text_width
from plait.graph.edges import RAW, Edges, words
from plait.graph.item import function_name

MOST_ITEMS, MOST_EDGES = 400, 1600  # above, a picture shows an overview
LARGEST, MOST_FOLDED = 3000, 150
MOST_ENDS = 60  # with more items, names are cut shorter, and inputs and outputs have no boxes of their own
FONT, SMALL = 12.0, 10.0

_NUMBER = re.compile(r"\d")

INPUT, OUTPUT, FOLD = "input", "output", "fold"


@dataclass(frozen=True)
class Scene:
    """Items by index with their edges, and in words what the picture is called and what a tooltip says of an item.

    ``inputs`` and ``outputs`` are (name, tooltip, the items that read or write it).
    """

    title: str
    items: Sequence[Any]
    edges: Edges
    details: Callable[[int], str]
    inputs: Sequence[tuple[str, str, Sequence[int]]] = ()
    outputs: Sequence[tuple[str, str, Sequence[int]]] = ()

    @property
    def groups(self) -> list[str]:
        """The groups that items are in, in the order in which they first come."""
        return list(dict.fromkeys(name for item in self.items for name in item.options.groups))


@dataclass(frozen=True)
class Box:
    """One box: its text, its tooltip, its outline, and the items in it."""

    label: str
    note: str
    title: str
    shape: str
    items: Sequence[int]
    width: float


@dataclass(frozen=True)
class Arrow:
    """One edge as drawn: the boxes it joins, the path, whether data flows along it, and its tooltip."""

    source: int
    target: int
    path: str
    flows: bool
    title: str


@dataclass(frozen=True)
class Arranged:
    """A scene with every box in its place."""

    scene: Scene
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    layout: Layout
    height: float
    folded: bool
    counts: str


def arrange(scene: Scene, folded: bool | Collection[str] | None = None) -> Arranged:
    """Fold and lay out. ``folded`` as in ``Graph.show``; GraphError for unknown groups, and for too much to draw."""
    return _arranged(scene, *_boxes(scene, folded))


def arrange_overview(scene: Scene) -> Arranged:
    """All items in a few boxes, whatever groups there are."""
    stems = name_stems(scene.items)
    return _arranged(scene, overview(scene.edges, stems), stems)


def _arranged(scene: Scene, box: Longs | None, names: Sequence[str]) -> Arranged:
    many = len(scene.items) if box is None else int(box.max(initial=-1)) + 1
    most = 28 if many <= MOST_ENDS else 18
    if box is None:
        boxes = [_single(scene, index, most) for index in range(len(scene.items))]
        edges = scene.edges
    else:
        boxes = _folded(scene, box, names, most)
        edges = contract(scene.edges, box)
    if many <= MOST_ENDS and box is None:
        boxes, edges = _with_ends(scene, boxes, edges)
    noted = any(each.note for each in boxes)
    height = 38.0 if noted else 26.0
    layout = lay_out(edges, [each.width for each in boxes], height)
    arrows = [
        Arrow(
            source,
            target,
            curve(route),
            bool(kinds & RAW),
            f"{boxes[source].label} → {boxes[target].label}: {', '.join(words(kinds))}",
        )
        for source, target, kinds, route in zip(
            edges.source.tolist(), edges.target.tolist(), edges.kinds.tolist(), layout.routes, strict=True
        )
    ]
    counts = f"{len(scene.items)} items, {len(scene.edges)} edges"
    if box is not None:
        counts += f", drawn as {many} boxes"
    return Arranged(scene, boxes, arrows, layout, height, box is not None, counts)


def _boxes(scene: Scene, folded: bool | Collection[str] | None) -> tuple[Longs | None, Sequence[str]]:
    """The box of each item, or None for a box each; and by item, what to call its box."""
    count, groups = len(scene.items), scene.groups
    if folded is None:
        if count <= MOST_ITEMS and len(scene.edges) <= MOST_EDGES:
            return None, ()
        if groups:
            keys = _keys(scene, groups)
            box = fold(scene.edges, keys)
            if int(box.max(initial=-1)) < MOST_FOLDED:
                return box, [str(key) for key in keys]
        stems = name_stems(scene.items)
        return overview(scene.edges, stems), stems
    wanted = groups if folded is True else [] if folded is False else [*folded]
    unknown = [name for name in wanted if name not in groups]
    if unknown:
        raise GraphError(f"fold={unknown!r}: no such group (groups: {', '.join(map(repr, groups)) or 'none'})")
    keys = _keys(scene, wanted) if wanted else []
    chosen = fold(scene.edges, keys) if wanted else None
    drawn = count if chosen is None else int(chosen.max(initial=-1)) + 1
    if drawn > LARGEST:
        raise GraphError(
            f"{drawn} boxes are too many to lay out (at most {LARGEST}): fold more groups, or leave fold=None, "
            "which shows an overview"
        )
    return chosen, [str(key) for key in keys]


def _keys(scene: Scene, groups: Collection[str]) -> list[Any]:
    chosen = set(groups)
    return [
        next((name for name in item.options.groups if name in chosen), index) for index, item in enumerate(scene.items)
    ]


def name_stems(items: Sequence[Any]) -> list[str]:
    """What items of one sort have in common: their names up to the first number, else what they call."""
    stems: dict[str, str] = {}
    found = []
    for item in items:
        name = item.options.name
        if name is None:
            found.append(work_of(item))
            continue
        stem = stems.get(name)
        if stem is None:
            stem = stems[name] = _NUMBER.split(name, maxsplit=1)[0].strip(" \t\n'\"#:;,._-/([{<")
        found.append(stem or work_of(item))
    return found


def work_of(item: Any) -> str:
    """In a word, what an item does: its function, else its kind."""
    return function_name(item.function) or str(item.kind)


def _single(scene: Scene, index: int, most: int) -> Box:
    item = scene.items[index]
    work = work_of(item)
    name = shortened(item.name, most)
    note = "" if item.name.startswith(work) or len(scene.items) > 150 else shortened(work, most)
    return Box(name, note, scene.details(index), item.kind, (index,), _width(name, note))


def _folded(scene: Scene, box: Longs, keys: Sequence[str], most: int) -> list[Box]:
    count = int(box.max(initial=-1)) + 1
    members: list[list[int]] = [[] for _ in range(count)]
    for index, each in enumerate(box.tolist()):
        members[each].append(index)
    stems = name_stems(scene.items)
    names = box_names(box, keys)
    boxes = []
    for mine, name in zip(members, names, strict=True):
        if len(mine) == 1:
            boxes.append(_single(scene, mine[0], most))
            continue
        inside = Counter(stems[index] for index in mine).most_common(6)
        title = f"{name}: {len(mine)} items\n" + "\n".join(f"  {kind} \u00d7 {times}" for kind, times in inside)
        shown, note = shortened(name, most), f"\u00d7 {len(mine)}"
        boxes.append(Box(shown, note, title, FOLD, mine, _width(shown, note)))
    return boxes


def _width(name: str, note: str) -> float:
    return max(44.0, 20 + max(text_width(name, FONT), text_width(note, SMALL)))


def _with_ends(scene: Scene, boxes: list[Box], edges: Edges) -> tuple[list[Box], Edges]:
    """With a box for each input and output. They come after the items, so items keep their numbers."""
    boxes = list(boxes)
    source, target, kinds = edges.source.tolist(), edges.target.tolist(), edges.kinds.tolist()
    for name, title, readers in scene.inputs:
        shown = shortened(name, 28)
        source += [len(boxes)] * len(readers)
        target += readers
        boxes.append(Box(shown, "", title, INPUT, (), _width(shown, "")))
    for name, title, writers in scene.outputs:
        shown = shortened(name, 28)
        source += writers
        target += [len(boxes)] * len(writers)
        boxes.append(Box(shown, "", title, OUTPUT, (), _width(shown, "")))
    kinds += [RAW] * (len(source) - len(kinds))
    return boxes, Edges.of(len(boxes), source, target, kinds)
