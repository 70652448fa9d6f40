"""How plans and runs show themselves: the picture of the items, the timeline, what took longest."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from plait.errors import GraphError, PlaitError, WorkError
from plait.graph.drawing.scene import MOST_ENDS, Scene
from plait.graph.drawing.svg import STATES, escape
from plait.graph.drawing.view import View, ends, item_categories, item_details, page, part, scene_part, scene_view
from plait.scheduler.picture import draw_timeline
from plait.scheduler.report import format_bytes, format_seconds
from plait.scheduler.seeing.starts import Starts, find_starts
from plait.scheduler.state import STATUS_WORDS
from plait.tracebacks import site_place

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan
    from plait.scheduler.run import Run

LONGEST = 12
Fold = bool | Collection[str] | None


def plan_scene(plan: Plan, title: str) -> Scene:
    """The scene of a plan: its items, with the transfers that the planner inserted."""
    items = plan.work
    plain = len(items) == len(plan.program.items) <= MOST_ENDS
    inputs, outputs = ends(plan.program) if plain else ([], [])
    return Scene(title, items, plan.edges, lambda index: _details(plan, index), inputs, outputs)


def plan_categories(plan: Plan, color: str) -> list[str]:
    """Per item of the plan's ``work``, what it is coloured by."""
    if color == "device":
        return _by_item(plan, [plan.place(position) for position in range(len(plan.order))])
    if color == "stream":
        return _by_item(plan, [plan.stream(position) or "any of the host's" for position in range(len(plan.order))])
    if color == "state":
        raise GraphError("color='state': a plan has none; show a run, or color by device, stream, group or name")
    return item_categories(plan.work, color)


def plan_view(plan: Plan, color: str | None, fold: Fold) -> View:
    """The picture of a plan, coloured by ``color`` and folded as ``Plan.show`` says."""
    color = color or ("device" if plan.on_device is not None else _default(plan))
    scene = plan_scene(plan, f"plan of {plan.program.graph.name}")
    return scene_view(scene, plan_categories(plan, color), color, fold)


def run_states(run: Run) -> list[str]:
    """The state of each item of the plan's ``work``, in a word."""
    state, count = run._state, len(run.plan.calls)
    if state.status:
        by_position = np.frombuffer(bytes(state.status), dtype=np.uint8).tolist()
    else:
        by_position = [state.status_of(position) for position in range(count)]
    words = [STATUS_WORDS[status] for status in by_position]
    if run.done:
        words = ["skipped" if word == "waiting" else word for word in words]
    return _by_item(run.plan, words)


def run_categories(run: Run, color: str) -> list[str]:
    """Per item of the plan's ``work``, what it is coloured by; ``"stream"`` and ``"device"`` are where it ran."""
    if color == "state":
        return run_states(run)
    if color == "stream" and run.done and run._state.traced:
        found = [""] * len(run.plan.work)
        trace = run.trace
        for item, stream in zip(trace.records["item"].tolist(), trace.records["stream"].tolist(), strict=True):
            found[item] = trace.streams[stream]
        return found
    return plan_categories(run.plan, color)


def run_view(run: Run, color: str | None, fold: Fold) -> View:
    """A run as a page: a line of figures, its timeline, what took longest, the graph by state. The SVG is the timeline,
    or the graph if the run was not traced or has not ended."""
    name = run.plan.program.graph.name
    states = run_states(run)
    scene = plan_scene(run.plan, f"run of {name}")
    if not run.done or not run._state.traced:
        word = color or "state"
        categories = states if word == "state" else run_categories(run, word)
        svg, shown = scene_part(scene, categories, word, fold, STATES if word == "state" else None)
        return View(page([_headline(run), shown]), svg)
    trace = run.trace
    color = color or _default(run.plan)
    categories = run_categories(run, color)
    starts = find_starts(trace)
    many = "1 item" if len(trace) == 1 else f"{len(trace)} items"
    svg = draw_timeline(
        f"run of {name}: {many} in {format_seconds(trace.makespan_ns / 1e9)}",
        trace,
        starts,
        categories,
        color,
        lambda index: item_details(run.plan.work[index]),
        fixed=STATES if color == "state" else None,
        failed={item for item, state in enumerate(states) if state == "failed"},
    )
    shown = scene_part(scene, states, "state", fold, STATES)[1]
    graph = f"<details><summary>the graph, by state</summary>{shown}</details>"
    return View(page([_headline(run), part(svg), _table(run, starts), graph]), svg)


def _default(plan: Plan) -> str:
    return "group" if any(item.options.groups for item in plan.work) else "name"


def _by_item(plan: Plan, by_position: Sequence[str]) -> list[str]:
    found = [""] * len(plan.work)
    for item, value in zip(plan.order.tolist(), by_position, strict=True):
        found[item] = value
    return found


def _details(plan: Plan, index: int) -> str:
    position = int(plan._positions[index])
    stream = plan.stream(position)
    where = f"runs on {plan.place(position)}" + (f", stream {stream}" if stream else "")
    return f"{item_details(plan.work[index])}\n{where}"


def _told(error: WorkError) -> str:
    """An error in a line, its call site as the notebook calls it."""
    return str(error).replace(error.site, site_place(error.site)) if error.site else str(error)


def _headline(run: Run) -> str:
    progress = run.progress
    advice = ""
    parts = [f"{progress.done} of {progress.total} items done"]
    parts += [
        f"{count} {word}" for word, count in (("failed", progress.failed), ("skipped", progress.skipped)) if count
    ]
    if run.done and run._state.traced:
        try:
            report = run.report()
        except PlaitError as error:
            parts.append(str(error))
        else:
            parts.append(f"{format_seconds(report.makespan_s)}, no schedule can beat {format_seconds(report.bound_s)}")
            if report.copies_hidden is not None:
                parts.append(f"{report.copies_hidden:.0%} of copy time behind compute")
            if report.peak_bytes is not None:
                parts.append(f"peak memory {format_bytes(report.peak_bytes)}")
            told = "".join(f"<li>{escape(each)}</li>" for each in report.advice)
            advice = f"<details><summary>what bounds it</summary><ol>{told}</ol></details>" if told else ""
    elif run.done:
        parts.append("for a timeline, run with trace=True")
    errors = "".join(f"<p>{escape(_told(error))}</p>" for error in run.errors)
    return f"<p><b>run of {escape(run.plan.program.graph.name)}</b>: {escape('; '.join(parts))}</p>{errors}{advice}"


def _short(site: str) -> str:
    """A call site without its folders."""
    return re.split(r"[/\\]", site_place(site))[-1]


def _table(run: Run, starts: Starts) -> str:
    """What took longest, as HTML."""
    trace = run.trace
    records = trace.records
    took = records["end_ns"] - records["start_ns"]
    critical = set(starts.critical)
    rows = []
    for at in np.argsort(-took, kind="stable")[:LONGEST].tolist():
        record = records[at]
        item = int(record["item"])
        cause = int(starts.cause[item])
        cells = [
            format_seconds(int(took[at]) / 1e9),
            f"{took[at] / max(1, trace.makespan_ns):.0%}",
            format_seconds(starts.queued_ns(item) / 1e9),
        ]
        words = [trace.streams[record["stream"]], trace.names[cause] if cause >= 0 else "nothing"]
        words += ["yes" if item in critical else "", _short(run.plan.work[item].site)]
        rows.append(
            f'<tr><td class="plait-name">{escape(trace.names[item])}</td>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + "".join(f'<td class="plait-left">{escape(word)}</td>' for word in words)
            + "</tr>"
        )
    left = ' class="plait-left"'
    head = (
        f"<tr><th{left}>what took longest</th><th>took</th><th>of the run</th><th>queued</th><th{left}>on</th>"
        f"<th{left}>waited for</th><th{left}>on the critical path</th><th{left}>recorded at</th></tr>"
    )
    return f'<div class="plait-scroll"><table>{head}{"".join(rows)}</table></div>'
