"""What a run teaches a cost model: the seconds of each call, by kernel, device kind and bytes touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph import CALL, WorkItem
from plait.scheduler.costing import touched_bytes
from plait.scheduler.policies.costs import CostModel, kernel_name
from plait.scheduler.state import DONE

if TYPE_CHECKING:
    from plait.scheduler.run import Run


def learn(model: CostModel, run: Run) -> None:
    """Note what each item of a traced run took that has come to its end; of one that was tried again, all its tries."""
    state, plan = run._state, run.plan
    nbytes = touched_bytes(plan.program)
    for position, (started, finished) in enumerate(zip(state.started, state.finished, strict=True)):
        item = plan.item(position)
        if not started or not isinstance(item, WorkItem) or item.kind is not CALL:
            continue
        if state.status_of(position) == DONE and finished >= started:
            seconds = (finished - started) / 1e9
            model.observe(kernel_name(item), _kind(plan.place(position)), nbytes[item.index], seconds)


def _kind(place: str) -> str:
    return place.partition(":")[0]
