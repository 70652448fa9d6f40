"""The trace of a run: one record per item that ran, and its Chrome trace file."""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plait.scheduler.device_plan import LAUNCH
from plait.scheduler.plan import KIND_WORDS

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan

RECORD = np.dtype(
    [("item", np.int32), ("stream", np.int16), ("kind", np.int8), ("start_ns", np.int64), ("end_ns", np.int64)]
)


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened, when and where.

    ``records`` is a structured array, one record per item that ran, in order of start: ``item`` (index in the
    program), ``stream`` (index into ``streams``), ``kind`` (0 compute, 1 copy, 2 loop), ``start_ns`` and ``end_ns``
    (nanoseconds since the run began). A straight run stamps the end of each item, which is the start of the next.
    """

    records: npt.NDArray[Any]
    streams: tuple[str, ...]
    device: str
    names: tuple[str, ...]
    makespan_ns: int

    def __len__(self) -> int:
        return len(self.records)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace format (JSON object form), one lane per device and stream; Perfetto opens it."""
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": self.device}},
            *(
                {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
                for tid, name in enumerate(self.streams)
            ),
        ]
        for record in self.records:
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": int(record["stream"]),
                    "name": self.names[record["item"]],
                    "cat": KIND_WORDS[record["kind"]],
                    "ts": int(record["start_ns"]) / 1000,
                    "dur": int(record["end_ns"] - record["start_ns"]) / 1000,
                }
            )
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")


def build_trace(
    plan: Plan,
    started: list[int],
    finished: list[int],
    lanes: array[int],
    streams: tuple[str, ...],
    begin_ns: int,
    end_ns: int,
) -> Trace:
    """Records from the run's flat stamps by position; what never ran has no record."""
    start = np.array(started, dtype=np.int64)
    ran = np.flatnonzero(start)
    records = np.empty(len(ran), dtype=RECORD)
    records["item"] = plan.order[ran]
    records["stream"] = np.frombuffer(lanes, dtype=np.uint16)[ran]
    kinds = np.array(plan.kinds, dtype=np.int64)[ran]
    records["kind"] = np.where(kinds < 3, kinds, kinds % 3 != LAUNCH)
    records["start_ns"] = start[ran] - begin_ns
    records["end_ns"] = np.array(finished, dtype=np.int64)[ran] - begin_ns
    records = records[np.argsort(records["start_ns"], kind="stable")]
    names = tuple(item.name for item in plan.work)
    return Trace(records, streams, plan.device, names, end_ns - begin_ns)
