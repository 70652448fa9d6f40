"""Seconds of items on each kind of device: given with the item, learnt from runs, or not known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from plait.graph import CALL, Program, WorkItem
from plait.graph.options import Options

FloatArray = npt.NDArray[np.float64]


def known_seconds(items: Sequence[Any], kind: str, model: Any = None, nbytes: Sequence[int | None] = ()) -> FloatArray:
    """Seconds of each item on devices of ``kind``, nan where nothing is known: float64, shape (items,).

    The item's ``cost`` option comes first, then what ``model`` knows of a call that touches ``nbytes[item.index]``.
    """
    seconds = np.array(by_option(items, lambda options: options.cost_on(kind)), dtype=np.float64)
    if model is not None and len(model):
        for position in np.flatnonzero(np.isnan(seconds)).tolist():
            item = items[position]
            if isinstance(item, WorkItem) and item.kind is CALL:
                found = model(item, kind, nbytes[item.index])
                seconds[position] = np.nan if found is None else found
    return seconds


def filled(seconds: FloatArray) -> FloatArray:
    """The same with the mean of the known ones for an unknown one, or one unit if none is known."""
    unknown = np.isnan(seconds)
    return np.where(unknown, 1.0 if unknown.all() else seconds[~unknown].mean(), seconds)


def touched_bytes(program: Program) -> list[int | None]:
    """Per item, the bytes of the buffers that it touches, as declared; None if some size is not known before a run."""
    sizes: dict[int, int | None] = {}
    found: list[int | None] = []
    offsets, buffers = program.offsets.tolist(), program.access_buffers.tolist()
    for begin, end in itertools.pairwise(offsets):
        total: int | None = 0
        for index in buffers[begin:end]:
            if index not in sizes:
                sizes[index] = _size(program.graph.buffer_at(index))
            size = sizes[index]
            total = None if size is None or total is None else total + size
        found.append(total)
    return found


def by_option(items: Sequence[Any], get: Callable[[Options], Any]) -> list[Any]:
    """``get`` of every item's options, asked once for each distinct options object."""
    options = [item.options for item in items]
    distinct = {id(each): each for each in options}
    if len(distinct) == 1:
        return [get(options[0])] * len(options)
    known = {key: get(each) for key, each in distinct.items()}
    return [known[id(each)] for each in options]


def asks_for_devices(options: Options) -> bool:
    """Whether they name a device other than the host, or give a cost on one."""
    if options.device not in (None, "host"):
        return True
    return isinstance(options.cost, Mapping) and any(kind != "host" for kind in options.cost)


def _size(buffer: Any) -> int | None:
    if buffer.kind == "resource":
        return 0
    if buffer.nbytes is None and buffer.value is not None:
        return getattr(buffer.value, "nbytes", None)
    return buffer.nbytes  # type: ignore[no-any-return]
