"""Bounds: how much memory an order of the items needs, and how fast any schedule can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from plait.graph.analysis import upward_rank
from plait.graph.edges import Edges

Longs = NDArray[np.int64]


class LiveBytes(NamedTuple):
    """Bytes per step of an order (int64, shape (steps,)): ``during`` it, and still live ``after`` it."""

    during: Longs
    after: Longs


class LowerBounds(NamedTuple):
    """No schedule is shorter than either, in the unit of the costs."""

    critical_path: float
    work: float

    @property
    def best(self) -> float:
        return max(self)


def lifetimes(
    order: ArrayLike,
    offsets: ArrayLike,
    buffers: ArrayLike,
    count: int,
    *,
    keep: ArrayLike = (),
    given: ArrayLike = (),
) -> tuple[Longs, Longs]:
    """``(first, last)`` step of ``order`` at which each of ``count`` buffers is live: int64, shape (count,).

    Item i uses the buffers ``buffers[offsets[i]:offsets[i + 1]]``. ``given`` (ids) are live from step 0,
    ``keep`` (ids) to the last step. A buffer that nobody uses has ``first > last``.
    """
    order_ = np.asarray(order, dtype=np.int64)
    offsets_ = np.asarray(offsets, dtype=np.int64)
    step = np.empty(len(offsets_) - 1, dtype=np.int64)
    step[order_] = np.arange(len(order_))
    used = np.asarray(buffers, dtype=np.int64)
    when = np.repeat(step, np.diff(offsets_))
    first = np.full(count, len(order_), dtype=np.int64)
    last = np.full(count, -1, dtype=np.int64)
    np.minimum.at(first, used, when)
    np.maximum.at(last, used, when)
    given_, keep_ = (np.asarray(ids, dtype=np.int64) for ids in (given, keep))
    first[given_] = 0
    last[given_] = np.maximum(last[given_], 0)
    last[keep_] = len(order_) - 1
    return first, last


def live_sets(first: ArrayLike, last: ArrayLike, steps: int) -> Iterator[frozenset[int]]:
    """The buffers live during each step, one set at a time."""
    starts: list[list[int]] = [[] for _ in range(steps)]
    ends: list[list[int]] = [[] for _ in range(steps)]
    bounds = zip(np.asarray(first).tolist(), np.asarray(last).tolist(), strict=True)
    for buffer, (begin, end) in enumerate(bounds):
        if begin <= end:
            starts[begin].append(buffer)
            ends[end].append(buffer)
    live: set[int] = set()
    for step in range(steps):
        live.update(starts[step])
        yield frozenset(live)
        live.difference_update(ends[step])


def live_bytes(
    order: ArrayLike,
    offsets: ArrayLike,
    buffers: ArrayLike,
    nbytes: ArrayLike,
    *,
    keep: ArrayLike = (),
    given: ArrayLike = (),
) -> LiveBytes:
    """The bytes of the buffers live during and after each step of an order; arguments as in ``lifetimes``.

    ``nbytes`` has one size per buffer (shape (buffers,)). What is kept stays after the last step too.
    """
    sizes = np.asarray(nbytes, dtype=np.int64)
    steps = len(np.asarray(order))
    first, last = lifetimes(order, offsets, buffers, len(sizes), keep=keep, given=given)
    used = first <= last
    change = np.zeros(steps + 1, dtype=np.int64)
    np.add.at(change, first[used], sizes[used])
    during_less_freed = np.zeros(steps + 1, dtype=np.int64)
    kept = np.zeros(len(sizes), dtype=np.bool_)
    kept[np.asarray(keep, dtype=np.int64)] = True
    freed = used & ~kept
    np.add.at(during_less_freed, last[freed], sizes[freed])
    gained, lost = np.cumsum(change[:steps]), np.cumsum(during_less_freed[:steps])
    return LiveBytes(gained - lost + during_less_freed[:steps], gained - lost)


def peak_bytes(
    order: ArrayLike,
    offsets: ArrayLike,
    buffers: ArrayLike,
    nbytes: ArrayLike,
    *,
    keep: ArrayLike = (),
    given: ArrayLike = (),
) -> int:
    """The most bytes live during any step of an order; arguments as in ``live_bytes``."""
    return int(live_bytes(order, offsets, buffers, nbytes, keep=keep, given=given).during.max(initial=0))


def lower_bounds(edges: Edges, cost: ArrayLike, workers: int) -> LowerBounds:
    """The critical path, and the work divided by the workers (Graham, SIAM J. Appl. Math. 1969)."""
    if workers < 1:
        raise ValueError(f"workers is {workers}; at least one is needed")
    costs = np.broadcast_to(np.asarray(cost, dtype=np.float64), (edges.count,))
    longest = float(upward_rank(edges, costs).max(initial=0.0))
    return LowerBounds(longest, float(costs.sum()) / workers)
