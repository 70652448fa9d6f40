"""SVG as text: escaping, the palette, legends, and how wide a text will be."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

# Okabe and Ito's palette, told apart with any colour vision; the last, grey, is for what has no colour of its own.
# Written into every shape, so that a picture has its colours also where style sheets are stripped.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a900", "#8a8f98")
GREY = len(PALETTE) - 1
STATES = {"waiting": GREY, "running": 1, "done": 0, "failed": 5, "skipped": GREY}
MARKS = {"waiting": "", "running": "▶", "done": "✓", "failed": "✕", "skipped": "\u2013"}

INK, SOFT, LINE, PAPER = "#1f2328", "#59636e", "#6e7781", "#ffffff"
MONO = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
EM = 0.61  # width of a monospaced letter over its size; a little more than in the fonts named

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: object) -> str:
    """Text that is safe in XML and HTML, in elements and attributes; what XML cannot hold becomes U+FFFD."""
    return html.escape(_NOT_XML.sub("\ufffd", str(text)), quote=True)


def text_width(text: str, size: float) -> float:
    """Pixels that ``text`` takes in the monospaced fonts, at most."""
    cells = sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
    return cells * size * EM


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters on one line: what is left out of the middle shows as an ellipsis."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def label(x: float, y: float, text: str, *, size: float = 12, anchor: str = "start", soft: bool = False) -> str:
    """A text element."""
    return (
        f'<text class="{"plait-soft" if soft else "plait-ink"}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" '
        f'text-anchor="{anchor}" fill="{SOFT if soft else INK}">{escape(text)}</text>'
    )


def colours(categories: Iterable[str], fixed: Mapping[str, int] | None = None) -> dict[str, int]:
    """A colour's number for each category, the most frequent first; from the eighth on they are grey."""
    if fixed is not None:
        return dict(fixed)
    counts = Counter(categories)
    ordered = sorted(counts, key=lambda name: (not name, -counts[name], name))
    named = [name for name in ordered if name]
    return {name: min(index, GREY) for index, name in enumerate(named)} | {"": GREY}


def legend(
    counts: Mapping[str, int], colour: Mapping[str, int], word: str, width: float, top: float
) -> tuple[str, float]:
    """Swatches with names and counts, in lines that fit ``width``; returns the SVG and the height it takes."""
    entries = [(name, counts[name]) for name in colour if counts.get(name)]
    marks = MARKS if word == "state" else {}  # a group may well be called "running"
    rest = [entry for entry in entries if colour[entry[0]] == GREY and word != "state"]
    if len(rest) > 1:
        entries = [entry for entry in entries if entry not in rest]
        entries.append((f"{len(rest)} more", sum(count for _, count in rest)))
    if len(entries) < 2 and not any(name for name, _ in entries):
        return "", 0.0
    parts, x, y = [label(2, top + 11, f"{word}:", size=11, soft=True)], 12 + text_width(f"{word}:", 11), top
    for name, count in entries:
        shown = f"{marks.get(name, '')} {shortened(name or 'none', 28)} \u00d7{count}".strip()
        needed = 24 + text_width(shown, 11)
        if x + needed > width and x > 100:
            x, y = 2.0, y + 18
        number = colour.get(name, GREY)
        parts.append(
            f'<g class="plait-key" data-k="{number}">{swatch(x, y + 1, 11, 11, number)}'
            f"{label(x + 16, y + 11, shown, size=11)}</g>"
        )
        x += needed
    return "".join(parts), y + 22 - top


def swatch(x: float, y: float, width: float, height: float, number: int) -> str:
    """A filled rectangle of one colour."""
    return (
        f'<rect class="plait-solid plait-c{number}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="2" fill="{PALETTE[number]}"/>'
    )


def document(width: float, height: float, parts: Sequence[str], name: str, kind: str = "plait-graph") -> str:
    """A whole SVG document that is also an element of HTML; it stands alone, with its style sheet."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plait-svg {kind}" role="img" aria-label="{escape(name)}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.1f} {height:.1f}" font-family="{MONO}">'
        f"<style>{style_sheet()}</style>"
        f'<rect class="plait-paper" width="100%" height="100%" fill="{PAPER}"/>{"".join(parts)}</svg>'
    )


def style_sheet() -> str:
    """The style sheet that pictures carry."""
    return _read("view.css")


def script() -> str:
    """The script that pages carry: zoom, hover and folding for what is complete without it."""
    return _read("view.js")


def _read(name: str) -> str:
    if name not in _texts:
        text = files("plait.graph.drawing").joinpath(name).read_text(encoding="utf-8")
        _texts[name] = "\n".join(line.strip() for line in text.splitlines() if line.strip())
    return _texts[name]


_texts: dict[str, str] = {}
