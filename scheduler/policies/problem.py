"""What a policy is asked, and what it answers: a graph with costs on a machine, as flat arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from plait.errors import PlanError
from plait.graph.edges import Edges, topological_order

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Items with costs and edges, and the devices that may run them. Build one with ``Problem.of``, which checks.

    ``cost[i, k]`` are the seconds of item i on a device of kind k, inf where it cannot run there: float64, shape
    (items, kinds). ``edges`` are the items' edges in CSR (see ``Edges.predecessors`` and ``successors``), ``nbytes``
    what flows along each in the same order: float64, shape (edges,). ``kind`` is the kind of each device: int64, shape
    (devices,). ``bandwidth`` is bytes per second and ``latency`` seconds from a device (row) to a device (column):
    float64, shape (devices, devices); the diagonals are inf and 0. ``pin`` is the device that an item must run on, -1
    where the policy chooses, and ``priority`` is the user's, larger first: int64, shape (items,).
    """

    cost: FloatArray
    edges: Edges
    nbytes: FloatArray
    kind: IntArray
    bandwidth: FloatArray
    latency: FloatArray
    pin: IntArray
    priority: IntArray

    @classmethod
    def of(
        cls,
        cost: ArrayLike,
        edges: Edges | Sequence[tuple[int, int]],
        nbytes: ArrayLike = 0.0,
        *,
        kind: ArrayLike | None = None,
        bandwidth: ArrayLike = np.inf,
        latency: ArrayLike = 0.0,
        pin: ArrayLike | None = None,
        priority: ArrayLike = 0,
    ) -> Problem:
        """A checked problem; ``edges`` may be pairs (before, after), each with its ``nbytes``.

        Left out: one device of each kind, links that take no time, no pins, equal priorities. PlanError names the
        argument, item or device that is wrong; a cycle raises CycleFound.
        """
        cost_ = np.atleast_2d(np.asarray(cost, dtype=np.float64))
        items, kinds = cost_.shape
        kind_ = np.arange(kinds) if kind is None else np.asarray(kind, dtype=np.int64)
        devices = len(kind_)
        if not isinstance(edges, Edges):
            pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
            flowing = np.broadcast_to(np.asarray(nbytes, dtype=np.float64), (len(pairs),))
            by = np.lexsort((pairs[:, 0], pairs[:, 1]))
            edges = Edges.of(items, pairs[:, 0], pairs[:, 1])
            if len(edges) != len(pairs):
                raise PlanError("edges holds a pair twice: give each pair once, with all its bytes")
            nbytes = flowing[by]
        problem = cls(
            cost=cost_,
            edges=edges,
            nbytes=_spread("nbytes", nbytes, (len(edges),)),
            kind=kind_.astype(np.int64),
            bandwidth=_spread("bandwidth", bandwidth, (devices, devices)),
            latency=_spread("latency", latency, (devices, devices)),
            pin=np.full(items, -1, dtype=np.int64) if pin is None else np.asarray(pin, dtype=np.int64),
            priority=_spread("priority", priority, (items,)).astype(np.int64),
        )
        np.fill_diagonal(problem.bandwidth, np.inf)
        np.fill_diagonal(problem.latency, 0.0)
        _check(problem)
        return problem

    @property
    def items(self) -> int:
        """The number of items."""
        return len(self.cost)

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.kind)

    @cached_property
    def seconds(self) -> FloatArray:
        """Seconds of each item on each device, inf where it may not run: float64, shape (items, devices)."""
        seconds = self.cost[:, self.kind]
        pinned = np.flatnonzero(self.pin >= 0)
        if len(pinned):
            there = self.pin[pinned]
            kept = seconds[pinned, there]
            seconds[pinned] = np.inf
            seconds[pinned, there] = kept
        return seconds

    @cached_property
    def seconds_lists(self) -> list[list[float]]:
        """``seconds`` as lists, which plain Python reads three times as fast."""
        listed: list[list[float]] = self.seconds.tolist()
        return listed

    @cached_property
    def allowed(self) -> list[tuple[int, ...]]:
        """Per item, the devices that it may run on."""
        known: dict[bytes, tuple[int, ...]] = {}
        allowed = np.isfinite(self.seconds)
        found = []
        for row in allowed:
            key = row.tobytes()
            if key not in known:
                known[key] = tuple(np.flatnonzero(row).tolist())
            found.append(known[key])
        return found

    @cached_property
    def predecessors(self) -> list[list[tuple[int, int]]]:
        """Per item, ``(predecessor, edge)`` for each edge that enters it."""
        offsets, sources = self.edges.predecessors()
        starts, flat = offsets.tolist(), sources.tolist()
        return [list(zip(flat[a:b], range(a, b), strict=True)) for a, b in itertools.pairwise(starts)]

    @cached_property
    def successors(self) -> list[list[tuple[int, int]]]:
        """Per item, ``(successor, edge)`` for each edge that leaves it."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.items)]
        for edge, (source, target) in enumerate(
            zip(self.edges.source.tolist(), self.edges.target.tolist(), strict=True)
        ):
            found[source].append((target, edge))
        return found

    @cached_property
    def topological(self) -> list[int]:
        """The items in an order that the edges follow: program order, if they follow that."""
        order: list[int] = topological_order(self.edges).tolist()
        return order

    @cached_property
    def memory(self) -> list[int]:
        """Per device, the first device that is as near as itself to it and to every other: they share a memory."""
        found: list[int] = []
        for device in range(self.devices):
            others = np.arange(self.devices) != device
            for first in sorted(set(found)):
                rest = others & (np.arange(self.devices) != first)
                near = (
                    (a[first, device], a[device, first]) == (own, own)
                    and (a[first, rest] == a[device, rest]).all()
                    and (a[rest, first] == a[rest, device]).all()
                    for a, own in ((self.bandwidth, np.inf), (self.latency, 0.0))
                )
                if all(near):
                    found.append(first)
                    break
            else:
                found.append(device)
        return found

    @cached_property
    def memories(self) -> list[int]:
        """The devices that stand for a memory each: the first that uses it."""
        return sorted(set(self.memory))

    @cached_property
    def alike(self) -> list[int]:
        """Per device, a number that devices of one kind and memory have in common."""
        known: dict[tuple[int, int], int] = {}
        pairs = zip(self.kind.tolist(), self.memory, strict=True)
        return [known.setdefault(pair, len(known)) for pair in pairs]

    @cached_property
    def delays(self) -> list[tuple[float, ...] | None]:
        """Per edge, the seconds it takes from device a to b at ``[a * devices + b]``; None if that is 0 for all."""
        with np.errstate(divide="ignore"):
            pace = 1.0 / self.bandwidth
        known: dict[float, tuple[float, ...] | None] = {}
        for size in set(self.nbytes.tolist()):
            # What carries no bytes is an order between items: the devices' events settle it, for the links' latency.
            delay = (self.latency + size * pace).ravel()
            known[size] = tuple(delay.tolist()) if delay.any() else None
        return [known[size] for size in self.nbytes.tolist()]

    @cached_property
    def mean_delay(self) -> FloatArray:
        """Seconds along each edge between two different devices, in the mean: float64, shape (edges,)."""
        count = self.devices
        if count < 2:
            return np.zeros(len(self.edges))
        apart = ~np.eye(count, dtype=bool)
        with np.errstate(divide="ignore"):
            pace = float((1.0 / self.bandwidth[apart]).mean())
        return np.asarray(float(self.latency[apart].mean()) + self.nbytes * pace, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Schedule:
    """What a policy answers: where each item runs, and in what order.

    ``device`` is the device of each item, ``order`` the items from most to least urgent (an order that the edges
    follow): int64, shape (items,). ``start`` and ``finish`` are the seconds that the policy expects: float64, shape
    (items,).
    """

    device: IntArray
    order: IntArray
    start: FloatArray
    finish: FloatArray

    @cached_property
    def rank(self) -> IntArray:
        """Each item's place in ``order``, 0 for the most urgent: int64, shape (items,)."""
        rank = np.empty(len(self.order), dtype=np.int64)
        rank[self.order] = np.arange(len(self.order))
        return rank

    @property
    def makespan(self) -> float:
        """Seconds until the last item has finished."""
        return float(self.finish.max(initial=0.0))


def _spread(name: str, values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    given = np.asarray(values, dtype=np.float64)
    try:
        return np.array(np.broadcast_to(given, shape))
    except ValueError:
        raise PlanError(f"{name} has shape {given.shape}; {shape} is wanted") from None


def _check(problem: Problem) -> None:
    items, devices = problem.items, problem.devices
    if problem.edges.count != items:
        raise PlanError(f"edges are among {problem.edges.count} items, cost has {items} rows")
    if devices < 1 or problem.kind.min() < 0 or problem.kind.max() >= problem.cost.shape[1]:
        raise PlanError(f"kind must name one of the {problem.cost.shape[1]} columns of cost for each of the devices")
    if np.isnan(problem.cost).any() or bool((problem.cost < 0).any()):
        raise PlanError("cost must be seconds of at least 0, or inf where an item cannot run")
    if bool((problem.bandwidth <= 0).any()) or bool((problem.latency < 0).any()) or bool((problem.nbytes < 0).any()):
        raise PlanError("bandwidth must be above 0, latency and nbytes at least 0")
    if problem.pin.shape != (items,) or (items and (problem.pin.min() < -1 or problem.pin.max() >= devices)):
        raise PlanError(f"pin must be a device from 0 to {devices - 1}, or -1, for each of the {items} items")
    nowhere = np.flatnonzero(~np.isfinite(problem.seconds).any(axis=1))
    if len(nowhere):
        item = int(nowhere[0])
        pinned = f", and it is pinned to device {problem.pin[item]}" if problem.pin[item] >= 0 else ""
        raise PlanError(f"item {item} can run on no device: its costs are {problem.cost[item].tolist()}{pinned}")
    _ = problem.topological  # a cycle is found here rather than later
