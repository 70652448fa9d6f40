"""An arranged scene as SVG: boxes and arrows, coloured by category, complete without any script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from plait.graph.drawing.scene import FOLD, FONT, INPUT, OUTPUT, SMALL, Arranged, Arrow, Box
from plait.graph.drawing.svg import (
    GREY,
    INK,
    LINE,
    MARKS,
    PALETTE,
    PAPER,
    colours,
    document,
    escape,
    label,
    legend,
    text_width,
)
from plait.graph.item import BARRIER, COPY, FILL

MARGIN, LEAST_WIDTH = 10.0, 420.0
SLANTED = (COPY, FILL, "transfer")


def draw(arranged: Arranged, categories: Sequence[str], word: str, fixed: Mapping[str, int] | None = None) -> str:
    """The SVG. ``categories`` has one name per item ('' for none), ``word`` says what they are; ``fixed`` gives
    their colours, by number, where those mean something of their own."""
    layout = arranged.layout
    colour = colours(categories, fixed)
    width = max(LEAST_WIDTH, layout.width) + 2 * MARGIN
    heading = f"{arranged.scene.title}: {arranged.counts}"
    keys, keys_height = legend(Counter(categories), colour, word, width - 2 * MARGIN, 26)
    top = 26 + keys_height + 8
    shift_x = MARGIN + max(0.0, (LEAST_WIDTH - layout.width) / 2)
    parts = [
        f'<g class="plait-head" transform="translate({MARGIN:g} 4)">{label(0, 14, heading, size=12)}{keys}</g>',
        f'<g transform="translate({shift_x:.1f} {top:.1f})">',
        *(_arrow(arrow, arranged.boxes[arrow.target]) for arrow in arranged.arrows),
        *(_box(arranged, index, box, categories, colour, word == "state") for index, box in enumerate(arranged.boxes)),
        "</g>",
    ]
    width = max(width, 2 * MARGIN + text_width(heading, 12))
    return document(width, top + layout.height + MARGIN, parts, heading)


def _arrow(arrow: Arrow, target: Box) -> str:
    x, y = map(float, arrow.path.rsplit(" ", 2)[-2:])
    y -= 5 if target.shape == FOLD else 0  # the box behind hides what comes below
    tip = f"M{x - 3:.1f} {y - 5:.1f}L{x:.1f} {y:.1f}L{x + 3:.1f} {y - 5:.1f}"
    dashes = "" if arrow.flows else ' stroke-dasharray="3 3"'
    return (
        f'<path class="plait-edge" data-s="{arrow.source}" data-t="{arrow.target}" d="{arrow.path}{tip}" fill="none" '
        f'stroke="{LINE}" stroke-width="1.2"{dashes}><title>{escape(arrow.title)}</title></path>'
    )


def _box(
    arranged: Arranged, index: int, box: Box, categories: Sequence[str], colour: Mapping[str, int], states: bool
) -> str:
    x, y, height = arranged.layout.x[index], arranged.layout.y[index], arranged.height
    inside = Counter(categories[item] for item in box.items)
    main = inside.most_common(1)[0][0] if inside else ""
    number = colour.get(main, GREY)
    title = box.title
    if len(box.items) > 1 and len(inside) > 1:
        title += "\n" + ", ".join(f"{count} {name or 'none'}" for name, count in inside.most_common())
    mark = MARKS.get(main, "") if states and len(inside) == 1 else ""
    middle = x + box.width / 2
    lines = [label(middle, y + (height / 2 + 4.2 if not box.note else 16.5), box.label, size=FONT, anchor="middle")]
    if box.note:
        lines.append(label(middle, y + 30.5, box.note, size=SMALL, anchor="middle", soft=True))
    if mark:
        lines.append(label(x + box.width - 3, y + 10, mark, size=9, anchor="end"))
    numbers = " ".join(sorted({str(colour.get(name, GREY)) for name in inside}))
    outline = _outline(box, x, y, height, number, states and main == "skipped")
    return (
        f'<g class="plait-box" data-n="{index}" data-k="{numbers}"><title>{escape(title)}</title>'
        f"{outline}{_shares(box, x, y, height, inside, colour)}{''.join(lines)}</g>"
    )


def _outline(box: Box, x: float, y: float, height: float, number: int, dashed: bool) -> str:
    """The paper under a box, so that arrows do not show through, and the box in its colour."""
    fill = f'fill="{PALETTE[number]}" fill-opacity=".2" stroke="{PALETTE[number]}" stroke-width="1.3"'
    if dashed:
        fill += ' stroke-dasharray="4 3"'
    paper = f'class="plait-paper" fill="{PAPER}"'
    if box.shape in (*SLANTED, BARRIER):
        lean, right, low, mid = 6.0, x + box.width, y + height, y + height / 2
        corners = (
            [(x + lean, y), (right, y), (right - lean, low), (x, low)]
            if box.shape in SLANTED
            else [(x + lean, y), (right - lean, y), (right, mid), (right - lean, low), (x + lean, low), (x, mid)]
        )
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
        return f'<polygon points="{points}" {paper}/><polygon class="plait-c{number}" points="{points}" {fill}/>'
    place = f'x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{height:.1f}"'
    if box.shape in (INPUT, OUTPUT):
        dashes = ' stroke-dasharray="1 2"' if box.shape == INPUT else ""
        return (
            f'<rect {place} rx="{height / 2:g}" {paper}/><rect class="plait-outline" {place} rx="{height / 2:g}" '
            f'fill="none" stroke="{INK}"{dashes}/>'
        )
    behind = ""
    if box.shape == FOLD:
        back = f'x="{x + 4:.1f}" y="{y - 4:.1f}" width="{box.width:.1f}" height="{height:.1f}"'
        behind = f'<rect {back} rx="4" {paper}/><rect class="plait-c{number}" {back} rx="4" {fill}/>'
    return f'{behind}<rect {place} rx="4" {paper}/><rect class="plait-c{number}" {place} rx="4" {fill}/>'


def _shares(box: Box, x: float, y: float, height: float, inside: Mapping[str, int], colour: Mapping[str, int]) -> str:
    """Along the lower side of a box of many, how many are of which category."""
    if len(inside) < 2:
        return ""
    parts, at = [], x + 2
    room = box.width - 4
    for name in sorted(inside, key=lambda each: (colour.get(each, GREY), each)):
        width = room * inside[name] / len(box.items)
        number = colour.get(name, GREY)
        parts.append(
            f'<rect class="plait-solid plait-c{number}" x="{at:.1f}" y="{y + height - 4:.1f}" width="{width:.1f}" '
            f'height="3" fill="{PALETTE[number]}"/>'
        )
        at += width
    return "".join(parts)
