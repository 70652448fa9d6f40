"""A trace's file: Chrome's JSON object form, with the trace as data under the key ``plait``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from plait.errors import PlaitError
from plait.graph import Edges
from plait.scheduler.seeing.chrome import chrome_events
from plait.scheduler.trace import DETAIL, HELD, RECORD, Limit, Trace

VERSION = 1


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write both. Viewers ignore keys that they do not know."""
    document = {"traceEvents": chrome_events(trace), "displayTimeUnit": "ns", "plait": _data(trace)}
    Path(path).write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read what ``save_trace`` wrote; PlaitError says what is wrong with the file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlaitError(f"cannot read the trace {os.fspath(path)!r}: {error}") from None
    data = document.get("plait") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        raise PlaitError(
            f"{os.fspath(path)!r} is no trace of plait: write one with run.trace.save or plait run --trace"
        )
    if data.get("version") != VERSION:
        raise PlaitError(
            f"{os.fspath(path)!r} is a trace of version {data.get('version')!r}, and this plait reads {VERSION}: "
            "record it again"
        )
    try:
        return _trace(data)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise PlaitError(f"{os.fspath(path)!r} is a broken trace: {type(error).__name__}: {error}") from None


def _data(trace: Trace) -> dict[str, Any]:
    sites = {site: index for index, site in enumerate(dict.fromkeys(trace.sites))}
    edges = trace.edges
    assert edges is not None, "a trace without edges has empty ones"
    return {
        "version": VERSION,
        "graph": trace.graph,
        "device": trace.device,
        "makespan_ns": trace.makespan_ns,
        "epoch_ns": trace.epoch_ns,
        "cores": trace.cores,
        "peak_bytes": trace.peak_bytes,
        "streams": list(trace.streams),
        "names": list(trace.names),
        "sites": {"known": list(sites), "of": [sites[site] for site in trace.sites]},
        "edges": {name: getattr(edges, name).tolist() for name in ("source", "target", "kinds")},
        "records": _columns(trace.records),
        "details": _columns(trace.details),
        "held": _columns(trace.held),
        "holders": list(trace.holders),
        "limits": [{"name": limit.name, "most": limit.most, "items": limit.items} for limit in trace.limits],
        "stalls": trace.stalls,
    }


def _columns(table: npt.NDArray[Any]) -> dict[str, list[int]]:
    return {name: table[name].tolist() for name in table.dtype.names or ()}


def _table(columns: dict[str, list[int]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    names = dtype.names or ()
    table = np.empty(len(columns[names[0]]), dtype)
    for name in names:
        column = np.array(columns[name])
        if column.shape != table.shape or (len(column) and column.dtype.kind != "i"):
            raise ValueError(f"column {name!r} should be {len(table)} integers")
        table[name] = column
    return table


def _trace(data: dict[str, Any]) -> Trace:
    names, streams = tuple(map(str, data["names"])), tuple(map(str, data["streams"]))
    records, edges = _table(data["records"], RECORD), data["edges"]
    for column, most in (("item", len(names)), ("stream", len(streams)), ("kind", 3)):
        if len(records) and not 0 <= records[column].min() <= records[column].max() < most:
            raise ValueError(f"a record's {column} is out of range")
    known = [str(site) for site in data["sites"]["known"]]
    return Trace(
        records,
        streams,
        str(data["device"]),
        names,
        int(data["makespan_ns"]),
        graph=str(data["graph"]),
        sites=tuple(known[index] for index in data["sites"]["of"]),
        edges=Edges.of(len(names), edges["source"], edges["target"], edges["kinds"]),
        details=_table(data["details"], DETAIL),
        held=_table(data["held"], HELD),
        holders=tuple(map(str, data["holders"])),
        limits=tuple(
            Limit(str(each["name"]), int(each["most"]), tuple(map(int, each["items"]))) for each in data["limits"]
        ),
        stalls=tuple((int(low), int(high), int(nbytes)) for low, high, nbytes in data["stalls"]),
        epoch_ns=int(data["epoch_ns"]),
        cores=int(data["cores"]),
        peak_bytes=None if data["peak_bytes"] is None else int(data["peak_bytes"]),
    )
