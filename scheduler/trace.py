"""The trace of a run as data: what ran when and where, what it waited for, and who held memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plait.errors import PlaitError
from plait.graph import Edges

if TYPE_CHECKING:
    from plait.scheduler.report import Report

RECORD = np.dtype(
    [("item", np.int32), ("stream", np.int16), ("kind", np.int8), ("start_ns", np.int64), ("end_ns", np.int64)]
)
DETAIL = np.dtype([("recorded_ns", np.int64), ("enqueued_ns", np.int64), ("nbytes", np.int64)])
HELD = np.dtype([("start_ns", np.int64), ("end_ns", np.int64), ("nbytes", np.int64), ("holder", np.int32)])
UNKNOWN = np.iinfo(np.int64).min  # a time that nobody took

Records = npt.NDArray[Any]


@dataclass(frozen=True)
class Limit:
    """A group of items of which so many may be in flight at once."""

    name: str
    most: int
    items: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened, when and where. All times are nanoseconds since the run began.

    ``records`` is a structured array, one record per item that ran, in order of start: ``item`` (index in the
    program), ``stream`` (index into ``streams``), ``kind`` (0 compute, 1 copy, 2 loop), ``start_ns`` and ``end_ns``.
    A straight run stamps the start of each item, which is the end of the one before. ``details`` stands beside it:
    ``recorded_ns`` (when it was recorded, so below 0; known of every 16th item, others have the time of the last such),
    ``enqueued_ns`` (when a device item was put in its stream; on the host, where a stream takes what is ready, its
    start) and ``nbytes`` (of an item's results, or what a copy moved; 0 if unknown).

    ``names`` and ``sites`` are by item. ``edges`` are the waits between items. ``held`` has a record per array that
    the run held: from when to when, its bytes, and who (index into ``holders``). ``stalls`` are ``(start_ns, end_ns,
    nbytes)`` of the times at which items were held back until that many bytes were free. ``epoch_ns`` is the begin in
    nanoseconds since 1970, ``cores`` how many the process could use. ``peak_bytes`` is what a memory limit on the host
    counted at most, None without one: then the peak is that of ``held``.
    """

    records: Records
    streams: tuple[str, ...]
    device: str
    names: tuple[str, ...]
    makespan_ns: int
    graph: str = "graph"
    sites: tuple[str, ...] = field(default=(), repr=False)
    edges: Edges | None = field(default=None, repr=False)
    details: Records = field(default_factory=lambda: np.empty(0, DETAIL), repr=False)
    held: Records = field(default_factory=lambda: np.empty(0, HELD), repr=False)
    holders: tuple[str, ...] = field(default=(), repr=False)
    limits: tuple[Limit, ...] = ()
    stalls: tuple[tuple[int, int, int], ...] = ()
    epoch_ns: int = 0
    cores: int = 0
    peak_bytes: int | None = None

    def __post_init__(self) -> None:
        if len(self.details) != len(self.records):
            details = np.zeros(len(self.records), DETAIL)
            details["recorded_ns"] = UNKNOWN
            details["enqueued_ns"] = self.records["start_ns"]
            object.__setattr__(self, "details", details)
        if self.edges is None:
            object.__setattr__(self, "edges", Edges.of(len(self.names), [], []))

    def __len__(self) -> int:
        return len(self.records)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace format (JSON object form), one lane per device and stream; Perfetto opens it.

        The file also holds the trace as data, for ``Trace.load``.
        """
        from plait.scheduler.seeing.trace_file import save_trace  # noqa: PLC0415  it imports this module

        save_trace(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """What ``save`` wrote; PlaitError if the file is something else."""
        from plait.scheduler.seeing.trace_file import load_trace  # noqa: PLC0415  it imports this module

        return load_trace(path)

    def report(self) -> Report:
        """Time against bounds, streams, critical path, memory, and what to change."""
        from plait.scheduler.report import build_report  # noqa: PLC0415  it imports this module

        return build_report(self)

    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """A column per property of an item, in order of start: names and words as objects, times in nanoseconds.

        ``ready_ns`` is when the last item that it waited for had ended, ``after`` that item's name; ``waited`` says
        what most of the time between ready and start went to, and ``waited_ns`` how long it was.
        """
        from plait.scheduler.seeing.waits import CAUSES, find_waits  # noqa: PLC0415  it imports this module

        waits = find_waits(self)
        names = np.array([*self.names, ""], dtype=object)
        items = self.records["item"]
        after = np.where(waits.blocker < 0, len(names) - 1, items[waits.blocker] if len(items) else 0)
        kinds = np.array(["compute", "copy", "loop"], dtype=object)
        sites = np.array(self.sites or [""] * len(self.names), dtype=object)
        spent = waits.spent
        waited = np.array([*CAUSES, ""], dtype=object)[
            np.where(spent.sum(axis=1) > 0, spent.argmax(axis=1), len(CAUSES)) if len(items) else []
        ]
        return {
            "item": names[items],
            "kind": kinds[self.records["kind"]],
            "stream": np.array(self.streams, dtype=object)[self.records["stream"]],
            "recorded_ns": self.details["recorded_ns"],
            "ready_ns": waits.ready,
            "enqueued_ns": self.details["enqueued_ns"],
            "start_ns": self.records["start_ns"],
            "end_ns": self.records["end_ns"],
            "nbytes": self.details["nbytes"],
            "after": names[after],
            "waited": waited,
            "waited_ns": self.records["start_ns"] - waits.ready,
            "site": sites[items],
        }

    def to_pandas(self) -> Any:
        """``columns`` as a pandas DataFrame, a row per item; the extra ``plait[pandas]``."""
        try:
            import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415  an extra
        except ImportError:
            raise PlaitError("to_pandas() needs pandas: pip install 'plait[pandas]'") from None
        return pd.DataFrame(dict(self.columns()))
