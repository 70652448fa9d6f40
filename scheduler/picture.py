"""A finished run as a timeline in SVG: a lane per stream, the critical path marked, waits with their cause."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from plait.graph.drawing.svg import (
    INK,
    LINE,
    MARKS,
    PALETTE,
    STATES,
    colours,
    document,
    escape,
    label,
    legend,
    shortened,
    text_width,
)
from plait.scheduler.bars import SECTIONS, Bar, Lane, build_lanes
from plait.scheduler.report import format_seconds
from plait.scheduler.seeing.starts import Starts

if TYPE_CHECKING:
    from plait.scheduler.trace import Trace

WIDTH, LANE, GAP, HEADING, RIGHT = 1000.0, 24.0, 5.0, 18.0, 52.0
MOST_TEXTS, MOST_WAITS, MOST_CRITICAL, LEAST_WAIT = 600, 600, 1500, 2.0


class _Place:
    """Where lanes stand, and where on the picture a time is."""

    def __init__(self, lanes: Sequence[Lane], span: int) -> None:
        self.left = 16 + max((text_width(lane.name, 11) for lane in lanes), default=0.0)
        self.width = WIDTH - self.left - RIGHT
        self.span = span
        self.tops: list[float] = []
        self.headings: list[tuple[float, str]] = []
        at, before = 0.0, None
        several = len({lane.device for lane in lanes}) > 1
        for lane in lanes:
            section = (lane.device, lane.section)
            if section != before:
                where = f"{lane.device}, " if several else ""
                self.headings.append((at + 12, f"{where}{SECTIONS[lane.section]}"))
                at += HEADING
                before = section
            self.tops.append(at)
            at += LANE + GAP
        self.height = at

    def x(self, time_ns: int) -> float:
        return time_ns / self.span * self.width


def draw_timeline(
    title: str,
    trace: Trace,
    starts: Starts,
    categories: Sequence[str],
    word: str,
    details: Callable[[int], str],
    *,
    fixed: dict[str, int] | None = None,
    failed: Collection[int] = (),
) -> str:
    """The SVG. ``categories`` names what each item of the plan is coloured by, ``word`` says what that is;
    ``failed`` are items that failed."""
    colour = colours((categories[item] for item in trace.records["item"].tolist()), fixed)
    lanes = build_lanes(trace, categories, WIDTH)
    place = _Place(lanes, max(1, trace.makespan_ns))
    counts = Counter(categories[item] for item in trace.records["item"].tolist())
    keys, keys_height = legend(counts, colour, word, WIDTH - 20, 26)
    head = 26 + keys_height
    top = head + 46
    inside = f'preserveAspectRatio="none" viewBox="0 0 {place.width:.1f} {place.height:.1f}"'
    where = f'x="{place.left:.1f}" y="{top:.1f}" width="{place.width:.1f}" height="{place.height:.1f}"'
    told = (
        f'data-left="{place.left:.1f}" data-width="{place.width:.1f}" data-height="{place.height:.1f}" '
        f'data-span="{place.span / 1e9!r}"'
    )
    parts = [
        f'<g class="plait-head" transform="translate(10 4)">{label(0, 14, title)}{keys}',
        f"{_marks_key(head, bool(failed))}</g>",
        _ticks(place, top),
        *(label(10, top + y, text, size=10, soft=True) for y, text in place.headings),
        *_names(lanes, place, top),
        f'<svg class="plait-lanes" {where} {inside} {told}>',
        *_waits(lanes, place, trace, starts),
        *_bars(lanes, place, trace, starts, colour, details),
        *_critical(lanes, place, trace, starts),
        "</svg>",
        *_texts(lanes, place, trace, top),
        *_failures(lanes, place, trace, starts, failed, top),
    ]
    return document(WIDTH, top + place.height + 8, parts, title, "plait-timeline")


def _marks_key(y: float, failures: bool) -> str:
    cross = label(274, y + 11, f"{MARKS['failed']} failed", size=11) if failures else ""
    return (
        f'<rect class="plait-criticalbar" x="2" y="{y + 5:.1f}" width="14" height="3" fill="{INK}"/>'
        f"{label(20, y + 11, 'critical path', size=11)}"
        f'<rect class="plait-soft" x="126" y="{y + 3:.1f}" width="14" height="7" fill="{LINE}" fill-opacity=".22"/>'
        f"{label(144, y + 11, 'the stream waits', size=11)}{cross}"
    )


def _names(lanes: Sequence[Lane], place: _Place, top: float) -> Iterator[str]:
    for lane, y in zip(lanes, place.tops, strict=True):
        yield label(place.left - 6, top + y + 16, lane.name, size=11, anchor="end")
        busy = f"{lane.busy_ns / place.span:.0%}"
        yield (
            f"<g><title>{escape(lane.name)} was busy for {busy} of the run</title>"
            f"{label(place.left + place.width + 6, top + y + 16, busy, size=11, soft=True)}</g>"
        )


def _ticks(place: _Place, top: float) -> str:
    seconds = place.span / 1e9
    power = 10.0 ** math.floor(math.log10(seconds / 6))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= seconds / 6 * (1 - 1e-9))
    parts = []
    for k in range(int(seconds / step * (1 + 1e-9)) + 1):
        x = place.left + k * step / seconds * place.width
        word = format_seconds(k * step) if k else "0"
        parts.append(
            f'<line class="plait-rule" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 6:.1f}" y2="{top + place.height:.1f}" '
            f'stroke="#d1d9e0"/>{label(x, top - 10, word, size=10, anchor="middle", soft=True)}'
        )
    return f'<g class="plait-ticks">{"".join(parts)}</g>'


def _row(lane: Lane, bar: Bar, y: float) -> tuple[float, float]:
    height = LANE / lane.rows
    return y + bar.row * height, height - (1 if lane.rows > 1 else 0)


def _bars(
    lanes: Sequence[Lane],
    place: _Place,
    trace: Trace,
    starts: Starts,
    colour: dict[str, int],
    details: Callable[[int], str],
) -> Iterator[str]:
    for lane, top in zip(lanes, place.tops, strict=True):
        for bar in lane.bars:
            y, height = _row(lane, bar, top)
            number = colour[bar.category]
            title = _bar_title(lane, bar, trace, starts, details)
            yield (
                f'<rect class="plait-bar plait-c{number}" data-k="{number}" x="{place.x(bar.start):.3f}" y="{y:.1f}" '
                f'width="{max(0.05, place.x(bar.end - bar.start)):.3f}" height="{height:.1f}" fill="{PALETTE[number]}" '
                f'fill-opacity=".38" stroke="{PALETTE[number]}" stroke-width=".8" vector-effect="non-scaling-stroke">'
                f"<title>{escape(title)}</title></rect>"
            )


def _bar_title(lane: Lane, bar: Bar, trace: Trace, starts: Starts, details: Callable[[int], str]) -> str:
    took = format_seconds((bar.end - bar.start) / 1e9)
    when = f"{lane.name}, from {format_seconds(bar.start / 1e9)} on"
    if bar.count > 1:
        return f"{bar.count} items in {took}, the longest: {trace.names[bar.item]}\n{when}"
    lines = [details(bar.item), f"took {took} on {when}"]
    cause = int(starts.cause[bar.item])
    if cause >= 0:
        lines.append(f"ready when {trace.names[cause]} ended, at {format_seconds(int(starts.ready[bar.item]) / 1e9)}")
    queued = starts.queued_ns(bar.item)
    if queued > _notice(trace):
        lines.append(f"then waited {format_seconds(queued / 1e9)} {starts.held_up(bar.item)}")
    return "\n".join(lines)


def _notice(trace: Trace) -> float:
    """Nanoseconds below which a wait is not worth a word: a thousandth of the run."""
    return trace.makespan_ns / 1000


def _waits(lanes: Sequence[Lane], place: _Place, trace: Trace, starts: Starts) -> Iterator[str]:
    """Where a stream had nothing to do before an item, and what that item was waiting for."""
    gaps = []
    for lane, top in zip(lanes, place.tops, strict=True):
        if lane.rows == 1:
            reached = 0
            for bar in lane.bars:
                if place.x(bar.start - reached) >= LEAST_WAIT:
                    gaps.append((bar.start - reached, reached, bar, top))
                reached = bar.end
    for length, begin, bar, top in sorted(gaps, key=lambda gap: -gap[0])[:MOST_WAITS]:
        yield (
            f'<rect class="plait-wait plait-soft" x="{place.x(begin):.3f}" y="{top + LANE / 2 - 4:.1f}" '
            f'width="{place.x(length):.3f}" height="8" fill="{LINE}" fill-opacity=".22">'
            f"<title>{escape(wait_words(bar.first, begin, length, trace, starts))}</title></rect>"
        )


def wait_words(item: int, begin: int, length: int, trace: Trace, starts: Starts) -> str:
    """In words, why a stream stood still for ``length`` nanoseconds from ``begin`` on, before it ran ``item``."""
    lines = [f"nothing to run for {format_seconds(length / 1e9)}"]
    cause, ready = int(starts.cause[item]), int(starts.ready[item])
    if cause >= 0 and ready > begin:
        lines.append(f"{trace.names[item]} came next and waited for {trace.names[cause]}")
        if begin + length - ready > _notice(trace):
            lines.append(f"then {format_seconds((begin + length - ready) / 1e9)} {starts.held_up(item)}")
    else:
        lines.append(f"{trace.names[item]} came next; it was ready and waited {starts.held_up(item)}")
    return "\n".join(lines)


def _critical(lanes: Sequence[Lane], place: _Place, trace: Trace, starts: Starts) -> Iterator[str]:
    """A line along the critical path: under each of its items, and from one to the next."""
    index = {lane.name: at for at, lane in enumerate(lanes)}
    stream_of = dict(zip(trace.records["item"].tolist(), trace.records["stream"].tolist(), strict=True))
    before: tuple[float, float] | None = None
    for item in [item for item in starts.critical if item in stream_of][:MOST_CRITICAL]:
        y = place.tops[index[trace.streams[stream_of[item]]]] + LANE - 1.5
        left, right = place.x(int(starts.start[item])), place.x(int(starts.end[item]))
        if before is not None:
            yield (
                f'<line class="plait-critical" x1="{before[0]:.3f}" y1="{before[1]:.1f}" x2="{left:.3f}" y2="{y:.1f}" '
                f'stroke="{INK}" stroke-width="1" stroke-dasharray="2 2" vector-effect="non-scaling-stroke" '
                'pointer-events="none"/>'
            )
        yield (
            f'<rect class="plait-criticalbar" x="{left:.3f}" y="{y - 1.5:.1f}" width="{max(0.05, right - left):.3f}" '
            f'height="3" fill="{INK}" pointer-events="none"/>'
        )
        before = (right, y)


def _failures(
    lanes: Sequence[Lane], place: _Place, trace: Trace, starts: Starts, failed: Collection[int], top: float
) -> Iterator[str]:
    """A cross over the end of each item that failed."""
    index = {lane.name: at for at, lane in enumerate(lanes)}
    for item, stream in zip(trace.records["item"].tolist(), trace.records["stream"].tolist(), strict=True):
        if item in failed:
            x, y = place.x(int(starts.end[item])), top + place.tops[index[trace.streams[stream]]] + LANE / 2
            number = STATES["failed"]
            yield (
                f'<text class="plait-solid plait-c{number} plait-inside" data-x="{x:.2f}" data-w="0" data-need="-99" '
                f'x="{place.left + x + 4:.1f}" y="{y + 7:.1f}" font-size="20" font-weight="bold" '
                f'fill="{PALETTE[number]}">{MARKS["failed"]}<title>{escape(trace.names[item])} failed</title></text>'
            )


def _texts(lanes: Sequence[Lane], place: _Place, trace: Trace, top: float) -> Iterator[str]:
    """Names in bars; those for which there is no room yet are hidden until the script zooms in."""
    found = [
        (bar.end - bar.start, lane, bar, y)
        for lane, y in zip(lanes, place.tops, strict=True)
        for bar in lane.bars
        if bar.count == 1 and lane.rows <= 2
    ]
    for length, lane, bar, lane_top in sorted(found, key=lambda each: -each[0])[:MOST_TEXTS]:
        name = shortened(trace.names[bar.item], 24)
        need, room = text_width(name, 10), place.x(length)
        y, height = _row(lane, bar, lane_top)
        left, middle = place.left + place.x(bar.start) + 4, top + y + height / 2 + 3.5
        hidden = "" if need + 8 < room else ' visibility="hidden"'
        yield (
            f'<text class="plait-ink plait-inside" data-x="{place.x(bar.start):.2f}" data-w="{room:.3f}" '
            f'data-need="{need:.0f}" x="{left:.1f}" y="{middle:.1f}" '
            f'font-size="10" fill="{INK}" pointer-events="none"{hidden}>{escape(name)}</text>'
        )
