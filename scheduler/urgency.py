"""Put items in order, most urgent first: by the user's priority, then the policy's word, never against an edge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from plait.errors import PlanError
from plait.graph import Edges, WorkItem
from plait.scheduler.costing import by_option
from plait.scheduler.expand import Expansion, Transfer

IntArray = npt.NDArray[np.int64]


def by_urgency(items: Sequence[WorkItem | Transfer], edges: Edges, urgency: npt.NDArray[np.float64]) -> IntArray:
    """Item indices, most urgent first: user priority (inherited by what an item waits for), then the policy's word."""
    count = len(items)
    if urgency.shape != (count,):
        raise PlanError(f"the policy returned {urgency.shape} urgencies for {count} items")
    priority = np.array(by_option(items, lambda options: options.priority), dtype=np.float64)
    for values in (priority, urgency):
        _inherit(values, edges)
    return np.lexsort((np.arange(count), -urgency, -priority)).astype(np.int64)


def by_priority(order: IntArray, items: Sequence[WorkItem | Transfer], edges: Edges) -> IntArray:
    """The same order, but what the user called more urgent first."""
    priority = np.array(by_option(items, lambda options: options.priority), dtype=np.float64)
    _inherit(priority, edges)
    return order[np.argsort(-priority[order], kind="stable")]


def _inherit(values: npt.NDArray[np.float64], edges: Edges) -> None:
    """Raise each item's value to that of the most urgent item behind it, so that sorting by it keeps the edges."""
    if not np.any(values[edges.source] < values[edges.target]):
        return
    offsets, successors = edges.successors()
    flat, starts = successors.tolist(), offsets.tolist()
    raised = values.tolist()
    for index in range(len(raised) - 1, -1, -1):
        for successor in flat[starts[index] : starts[index + 1]]:
            raised[index] = max(raised[index], raised[successor])
    values[:] = raised


def spread_urgency(urgency: npt.NDArray[np.float64], expansion: Expansion) -> npt.NDArray[np.float64]:
    """Urgency by program item, for the items with transfers between them: a transfer inherits that of what waits for
    it, and what nothing waits for comes right behind what it brings."""
    spread = np.full(len(expansion.items), -np.inf)
    for index, item in enumerate(expansion.items):
        if not isinstance(item, Transfer):
            spread[index] = urgency[item.index]
    last = expansion.edges.out_degree() == 0
    for source, target in zip(expansion.edges.source.tolist(), expansion.edges.target.tolist(), strict=True):
        if last[target] and isinstance(expansion.items[target], Transfer):
            behind = spread[source]
            spread[target] = behind if np.isinf(spread[target]) else min(spread[target], behind)
    return spread
