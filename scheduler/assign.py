"""A place for each item: the one it asks for, or what the policy chooses among those that would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from plait.devices import library
from plait.errors import PlanError
from plait.graph import BARRIER, CALL, Program, WorkItem
from plait.graph.interop import edge_bytes
from plait.scheduler.costing import filled, known_seconds
from plait.scheduler.expand import HOST
from plait.scheduler.links import links
from plait.scheduler.place import Places
from plait.scheduler.policies import Policy, Problem
from plait.scheduler.policies.cost_model import CostModel, kernel_name

_TRANSFER = 0.5  # what bringing one argument of unknown size takes, in mean items
_TRIES = 2  # items of a kernel that explore a kind of device on which its time is a guess


@dataclass(frozen=True)
class Assignment:
    """``places``: per item in program order, None where the data should decide (copies, fills, barriers).

    ``urgency``, larger first, float64 of shape (items,): the order that came with the places; None if nothing had to be
    chosen, and the policy's order does as well.
    """

    places: list[int | None]
    urgency: npt.NDArray[np.float64] | None


def assign(
    program: Program,
    places: Places,
    policy: Policy,
    is_async: Callable[[WorkItem], bool],
    lanes: int,
    model: CostModel | None = None,
    nbytes: Sequence[int | None] = (),
) -> Assignment:
    """Ask the policy where there is a choice: the host counts as ``lanes`` devices, any other as one.

    PlanError names an item that can be placed nowhere.
    """
    items = program.items
    candidates = [_candidates(item, places, is_async) for item in items]
    if all(len(each) <= 1 for each in candidates):
        return Assignment([each[0] if each else None for each in candidates], None)
    platforms = ["host", *(device.platform for device in places.devices)]
    kinds = list(dict.fromkeys(platforms))
    place_of = [HOST] * lanes + list(range(1, len(platforms)))
    allowed = np.zeros((len(items), len(kinds)), dtype=bool)
    pin = np.full(len(items), -1, dtype=np.int64)
    columns = {
        possible: sorted({kinds.index(platforms[place]) for place in possible or range(len(platforms))})
        for possible in set(candidates)
    }
    for index, possible in enumerate(candidates):
        allowed[index, columns[possible]] = True
        if len(possible) == 1 and possible[0] != HOST:
            pin[index] = lanes + possible[0] - 1
    known = np.column_stack([known_seconds(items, kind, model, nbytes) for kind in kinds])
    _explore(items, candidates, kinds, allowed, model, nbytes)
    kind = [kinds.index(platforms[place]) for place in place_of]
    bandwidth, latency = (each[np.ix_(place_of, place_of)] for each in links(places.devices))
    problem = _problem(program, allowed, known, pin, kind, bandwidth, latency)
    schedule = policy.plan(problem)
    chosen: list[int | None] = [
        place_of[device] if possible else None
        for device, possible in zip(schedule.device.tolist(), candidates, strict=True)
    ]
    return Assignment(chosen, -schedule.rank.astype(np.float64))


def _candidates(item: WorkItem, places: Places, is_async: Callable[[WorkItem], bool]) -> tuple[int, ...]:
    """Where an item may run; nothing for what goes where its data is."""
    if item.kind is BARRIER or (item.kind is not CALL and item.options.device is None):
        return ()
    found = places.candidates(item)
    if is_async(item):
        if HOST not in found:
            raise PlanError(
                f"item {item.name!r} (recorded at {item.site}) is an async function, which is awaited on the "
                f"host's loop and cannot run on {item.options.device!r}"
            )
        return (HOST,)
    if item.options.device is None and HOST in found:
        return places.with_host(tuple(platform for platform in places.platforms if _runs_on(item, platform)))
    return found


def _runs_on(item: WorkItem, platform: str) -> bool:
    """Whether an item that asks for no device can run on ``platform``: a kernel that has a version for it, or a
    function of which a cost there was given. A Python function is otherwise taken to be written for the host."""
    function = item.function
    try:
        if isinstance(function, str):
            library.lookup(function, platform)
            return True
        if hasattr(function, "on"):
            function.on(platform)
            return True
    except PlanError:
        return False
    return isinstance(item.options.cost, Mapping) and platform in item.options.cost


def _explore(
    items: Sequence[WorkItem],
    candidates: Sequence[tuple[int, ...]],
    kinds: Sequence[str],
    allowed: npt.NDArray[np.bool_],
    model: CostModel | None,
    nbytes: Sequence[int | None],
) -> None:
    """Confine the first items of a kernel to kinds of devices on which its time is a guess, so that it gets known."""
    if model is None:
        return
    tries: dict[tuple[str, str], int] = {}
    for index, item in enumerate(items):
        options = item.options
        if len(candidates[index]) < 2:
            continue
        name = kernel_name(item)
        for column, kind in enumerate(kinds):
            if not allowed[index, column] or options.cost_on(kind) is not None:
                continue
            tried = tries.get((name, kind), 0)
            if tried < _TRIES and model.is_guess(name, kind, nbytes[index]):
                tries[name, kind] = tried + 1
                allowed[index] = False
                allowed[index, column] = True
                break


def _problem(
    program: Program,
    allowed: npt.NDArray[np.bool_],
    known: npt.NDArray[np.float64],
    pin: npt.NDArray[np.int64],
    kind: list[int],
    bandwidth: npt.NDArray[np.float64],
    latency: npt.NDArray[np.float64],
) -> Problem:
    items = program.items
    costs_known = not np.isnan(known[allowed]).all()
    # What is not known on one kind counts as on the others, then as the mean of all: no kind looks free.
    over_kinds = np.where(np.isnan(known), np.nan, known)
    rows = ~np.isnan(over_kinds).all(axis=1)
    mean = np.full(len(items), np.nan)
    mean[rows] = np.nanmean(over_kinds[rows], axis=1)
    cost = np.where(np.isnan(known), filled(mean)[:, None], known)
    cost[[item.kind is BARRIER for item in items]] = 0.0
    least = np.full(len(items), np.nan)
    least[rows] = np.nanmin(over_kinds[rows], axis=1)
    typical = float(filled(least).mean())
    flows = edge_bytes(program)
    real = bandwidth[np.isfinite(bandwidth)]
    guess = _TRANSFER * typical * (float(real.mean()) if len(real) else 0.0)
    nbytes = [guess if flow is None or (flow and not costs_known) else float(flow) for flow in flows]
    return Problem.of(
        np.where(allowed, cost, np.inf),
        program.edges,
        nbytes,
        kind=kind,
        bandwidth=bandwidth,
        latency=latency,
        pin=pin,
        priority=[item.options.priority for item in items],
    )
