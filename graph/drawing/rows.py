"""Rows of a layered layout: every box below all that it waits for, and no row much wider than a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from plait.graph.edges import Edges, levels, topological_order

LEAST_WIDTH, SHAPE = 960.0, 1.8  # pixels of a row that are always allowed; width over height that is aimed at


def assign_rows(edges: Edges, widths: Sequence[float], height: float, gap_x: float, gap_y: float) -> list[int]:
    """The row of each box. A level that is too wide goes over several rows, as Coffman and Graham (Acta Informatica
    1972) bound it; of level order and depth-first order, the one whose edges pass fewer rows."""
    area = sum(width + gap_x for width in widths) * (height + gap_y)
    limit = max(LEAST_WIDTH, (SHAPE * area) ** 0.5)
    offsets, before = (array.tolist() for array in edges.predecessors())
    by_level = np.argsort(levels(edges), kind="stable").tolist()
    best: list[int] = []
    for order in (by_level, _depth_first(edges)):
        row = _filled(order, offsets, before, widths, gap_x, limit)
        row = _sources_down(row, edges, widths, gap_x, limit)
        if not best or _span(edges, row) < _span(edges, best):
            best = row
    return best


def _filled(
    order: list[int], offsets: list[int], before: list[int], widths: Sequence[float], gap: float, limit: float
) -> list[int]:
    row = [0] * len(order)
    filled: list[float] = []
    for node in order:
        at = max((row[other] + 1 for other in before[offsets[node] : offsets[node + 1]]), default=0)
        while at < len(filled) and filled[at] and filled[at] + widths[node] > limit:
            at += 1
        filled += [0.0] * (at + 1 - len(filled))
        filled[at] += widths[node] + gap
        row[node] = at
    return row


def _sources_down(row: list[int], edges: Edges, widths: Sequence[float], gap: float, limit: float) -> list[int]:
    """What waits for nothing goes just above its first user, if there is room."""
    filled = [0.0] * (max(row, default=0) + 1)
    for node, at in enumerate(row):
        filled[at] += widths[node] + gap
    offsets, after = (array.tolist() for array in edges.successors())
    for node in edges.sources().tolist():
        users = after[offsets[node] : offsets[node + 1]]
        if users:
            wanted = min(row[user] for user in users) - 1
            if wanted > row[node] and filled[wanted] + widths[node] <= limit:
                filled[row[node]] -= widths[node] + gap
                filled[wanted] += widths[node] + gap
                row[node] = wanted
    used = {at: index for index, at in enumerate(sorted(set(row)))}
    return [used[at] for at in row]


def _depth_first(edges: Edges) -> list[int]:
    """A topological order in which a box comes soon after the last that it waits for."""
    offsets, after = (array.tolist() for array in edges.successors())
    waiting = edges.in_degree().tolist()
    stack = [node for node in topological_order(edges).tolist()[::-1] if not waiting[node]]
    order = []
    while stack:
        node = stack.pop()
        order.append(node)
        for successor in after[offsets[node] : offsets[node + 1]][::-1]:
            waiting[successor] -= 1
            if not waiting[successor]:
                stack.append(successor)
    return order


def _span(edges: Edges, row: list[int]) -> int:
    rows = np.array(row, dtype=np.int64)
    return int((rows[edges.target] - rows[edges.source]).sum())
