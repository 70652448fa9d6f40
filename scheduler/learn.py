"""What a run teaches a cost model: the seconds of each call, by kernel, device kind and bytes touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph import CALL, WorkItem
from plait.scheduler.costing import touched_bytes
from plait.scheduler.policies.cost_model import CostModel, kernel_name
from plait.scheduler.state import DONE

if TYPE_CHECKING:
    from plait.scheduler.run import Run


def learn(model: CostModel, run: Run) -> None:
    """Note what each item of a traced run took that has come to its end; of one that was tried again, all its tries."""
    plan, records = run.plan, run.finished_trace().records
    nbytes = touched_bytes(plan.program)
    position_of = dict(zip(plan.order.tolist(), range(len(plan.order)), strict=True))
    spans = (records["end_ns"] - records["start_ns"]).tolist()
    for index, span in zip(records["item"].tolist(), spans, strict=True):
        item, position = plan.work[index], position_of[index]
        if not isinstance(item, WorkItem) or item.kind is not CALL or run._state.status_of(position) != DONE:
            continue
        kind = plan.place(position).partition(":")[0]
        model.observe(kernel_name(item), kind, nbytes[item.index], max(0, span) / 1e9)
