"""Deadlines: how long each item may wait, and the proof that a plan cannot meet one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from plait.errors import PlanError
from plait.graph.analysis import critical_path
from plait.scheduler.kinds import COMPUTE
from plait.scheduler.report import format_seconds

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan

_SHOWN = 8


def check_deadline(plan: Plan, deadline: float) -> None:
    """PlanError if the known costs prove that no run of ``plan`` ends within ``deadline`` seconds.

    It shows the chain of items that takes longer, or the host's work over its streams. An item of unknown cost counts
    as nothing, a transfer too.
    """
    name = plan.program.graph.name
    if max(plan.rest, default=0.0) > deadline:
        length, path = critical_path(plan.waits, plan.known_cost)
        steps = [
            f"{plan.item(position).name} {format_seconds(plan.known_cost[position])}"
            for position in path
            if plan.known_cost[position]
        ]
        shown = [*steps[: _SHOWN - 2], "…", *steps[-2:]] if len(steps) > _SHOWN + 1 else steps
        raise PlanError(
            f"graph {name!r} cannot end within its deadline of {format_seconds(deadline)}: these items, one after the "
            f"other, take {format_seconds(length)}: {' -> '.join(shown)}; give it more time, shorten this path, or "
            "correct the costs"
        )
    on_host = np.array(plan.kinds, dtype=np.int64) == COMPUTE
    work = float(plan.known_cost[on_host].sum()) / plan.streams[0]
    if work > deadline:
        raise PlanError(
            f"graph {name!r} cannot end within its deadline of {format_seconds(deadline)}: its host items take "
            f"{format_seconds(work * plan.streams[0])} in all, which is {format_seconds(work)} on each of "
            f"{plan.streams[0]} streams; give it more time or more streams, or correct the costs"
        )
