"""Compile a program for given devices: items placed and ordered, waits and value slots laid out in flat lists."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
from plait.devices import Device, Kernel, library
from plait.errors import PlanError
from plait.graph import BARRIER, BUFFER, CALL, CONSTANT, RESOURCE, BufferSlice, Edges, Program, WorkItem
from plait.graph.options import Options
from plait.scheduler.bind import Binder, Getter, Values
from plait.scheduler.explain import explain
from plait.scheduler.policies import Policy, find_policy

COMPUTE, COPY, LOOP = 0, 1, 2
KIND_WORDS = ("compute", "copy", "loop")

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """A program compiled for devices: immutable, reusable by any number of runs at once.

    Items are renumbered by urgency: position 0 is the most urgent, and every item stands behind all that it waits
    for. On the host an item may run on any stream of its kind as soon as its waits are done, so every edge is an
    event wait of its own and none rests on stream order.
    """

    program: Program
    device: str
    policy: str
    streams: tuple[int, int]
    order: IntArray
    kinds: list[int]
    cost: npt.NDArray[np.float64]
    waits: Edges
    calls: list[Callable[..., Any]] = field(repr=False)
    getters: list[Getter] = field(repr=False)
    outs: list[int] = field(repr=False)
    template: Values = field(repr=False)
    frees: list[tuple[int, ...]] = field(repr=False)
    accesses: tuple[IntArray, IntArray] = field(repr=False)
    keep: npt.NDArray[np.bool_] = field(repr=False)
    output_positions: dict[str, list[int]] = field(repr=False)
    groups: dict[int, tuple[str, ...]] = field(repr=False)
    outputs_at: dict[int, list[str]] = field(repr=False)
    outputs_ending: dict[int, list[str]] = field(repr=False)
    output_ends: list[int] = field(repr=False)
    allocates: bool
    straight: bool
    chain: bool

    def __repr__(self) -> str:
        return f"<Plan of {self.program.graph.name!r}: {len(self.calls)} items on {self.device}>"

    @property
    def items(self) -> list[WorkItem]:
        """The items by position, most urgent first."""
        items = self.program.items
        return [items[index] for index in self.order.tolist()]

    def item(self, position: int) -> WorkItem:
        """The item at ``position``."""
        return self.program.items[int(self.order[position])]

    def position(self, name: str) -> int:
        """The position of the item called ``name``; PlanError if there is none."""
        index = self.program.index_of.get(name)
        if index is None:
            raise PlanError(f"no item is called {name!r} in graph {self.program.graph.name!r}")
        return int(self._positions[index])

    @functools.cached_property
    def _positions(self) -> IntArray:
        positions = np.empty(len(self.order), dtype=np.int64)
        positions[self.order] = np.arange(len(self.order))
        return positions

    # What only counted runs need, as lists: made when the first one needs it. Item p's successors are
    # successors[successor_offsets[p]:successor_offsets[p + 1]], and likewise the slots that it touches.

    @functools.cached_property
    def successor_offsets(self) -> list[int]:
        offsets: list[int] = self.waits.successors()[0].tolist()
        return offsets

    @functools.cached_property
    def successors(self) -> list[int]:
        successors: list[int] = self.waits.successors()[1].tolist()
        return successors

    @functools.cached_property
    def access_offsets(self) -> list[int]:
        offsets: list[int] = self.accesses[0].tolist()
        return offsets

    @functools.cached_property
    def access_slots(self) -> list[int]:
        slots: list[int] = self.accesses[1].tolist()
        return slots

    def explain(self) -> str:
        """In words: what runs where, in what order, and what each item waits for."""
        return explain(self)


@contextmanager
def collector_paused(count: int) -> Iterator[None]:
    """Compiling makes objects by the million and no garbage, and each full collection would visit them all."""
    pause = count >= 10_000 and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def compile_plan(program: Program, devices: Sequence[Device], streams: tuple[int, int], policy: str | Policy) -> Plan:
    """Lay ``program`` over the host device's ``streams`` (compute, copy); PlanError names what cannot be placed."""
    chosen = find_policy(policy)
    items = program.items
    count = len(items)
    host = _place(program, devices)
    cost = _costs(items, host.platform)
    order = _order(program, np.asarray(chosen(program.edges, cost), dtype=np.float64))
    positions = np.empty(count, dtype=np.int64)
    positions[order] = np.arange(count)
    waits = _renumbered(program.edges, positions)
    binder = Binder(program)
    kinds, calls, getters, outs = _bind(binder, [items[index] for index in order.tolist()], host.platform)
    slots = len(binder.template)
    binder.template += [None, None]
    keep = np.zeros(slots + 2, dtype=bool)
    keep[program.buffer_count :] = True
    output_positions = _outputs(program, positions, keep)
    for buffer in program.declared:
        if buffer.kind in (CONSTANT, RESOURCE):
            keep[buffer.index] = True
    access_offsets, access_slots = _accesses(program, order)
    limits = program.group_limits
    groups = {
        position: limited
        for position, index in enumerate(order.tolist() if limits else [])
        if (limited := tuple(name for name in items[index].options.groups if limits[name] is not None))
    }
    outputs_at: dict[int, list[str]] = {}
    outputs_ending: dict[int, list[str]] = {}
    for name, writers in output_positions.items():
        if writers:
            outputs_ending.setdefault(writers[-1] + 1, []).append(name)
        for writer in writers:
            outputs_at.setdefault(writer, []).append(name)
    return Plan(
        program=program,
        device=host.name,
        policy=policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__),
        streams=streams,
        order=order,
        kinds=kinds,
        cost=cost[order],
        waits=waits,
        calls=calls,
        getters=getters,
        outs=[slots + 1 if out < 0 else out for out in outs],
        template=binder.template,
        frees=_frees(access_offsets, access_slots, keep),
        accesses=(access_offsets, access_slots),
        keep=keep,
        output_positions=output_positions,
        groups=groups,
        outputs_at=outputs_at,
        outputs_ending=outputs_ending,
        output_ends=sorted(outputs_ending),
        allocates=any(buffer.kind == BUFFER for buffer in program.declared),
        straight=not groups and not any(kinds),
        chain=int(np.count_nonzero(waits.target - waits.source == 1)) >= count - 1,
    )


def _place(program: Program, devices: Sequence[Device]) -> Device:
    host = next((device for device in devices if device.platform == "host"), None)
    if host is None:
        raise PlanError("the scheduler has no host device to run Python functions on: add 'host' to its devices")
    known = {name for device in devices for name in (device.name, f"{device.platform}:{device.ordinal}")}
    for item in program.items:
        wanted = item.options.device
        if wanted is not None and wanted.lower() not in known:
            raise PlanError(
                f"item {item.name!r} (recorded at {item.site}) wants device {wanted!r}; "
                f"this scheduler has {', '.join(sorted(known))}"
            )
    return host


def _by_option(items: Sequence[WorkItem], get: Callable[[Options], Any]) -> list[Any]:
    """``get`` of every item's options, asked once for each distinct options object."""
    options = [item.options for item in items]
    if options and options.count(options[0]) == len(options):
        return [get(options[0])] * len(options)
    known = {id(each): get(each) for each in {id(each): each for each in options}.values()}
    return [known[id(each)] for each in options]


def _costs(items: Sequence[WorkItem], platform: str) -> npt.NDArray[np.float64]:
    """Seconds per item; an unknown cost counts as the mean of the known ones, or as one unit if none is known."""
    cost = np.array(_by_option(items, lambda options: options.cost_on(platform)), dtype=np.float64)
    unknown = np.isnan(cost)
    cost[unknown] = 1.0 if unknown.all() else cost[~unknown].mean()
    return cost


def _order(program: Program, urgency: npt.NDArray[np.float64]) -> IntArray:
    """Item indices, most urgent first: user priority (inherited by what an item waits for), then the policy's word."""
    count = len(program.items)
    if urgency.shape != (count,):
        raise PlanError(f"the policy returned {urgency.shape} urgencies for {count} items")
    edges = program.edges
    priority = np.array(_by_option(program.items, lambda options: options.priority), dtype=np.float64)
    for values in (priority, urgency):
        _inherit(values, edges)
    return np.lexsort((np.arange(count), -urgency, -priority)).astype(np.int64)


def _inherit(values: npt.NDArray[np.float64], edges: Edges) -> None:
    """Raise each item's value to that of the most urgent item behind it, so that sorting by it keeps the edges."""
    if not np.any(values[edges.source] < values[edges.target]):
        return
    offsets, successors = edges.successors()
    flat, starts = successors.tolist(), offsets.tolist()
    raised = values.tolist()
    for index in range(len(raised) - 1, -1, -1):
        for successor in flat[starts[index] : starts[index + 1]]:
            raised[index] = max(raised[index], raised[successor])
    values[:] = raised


def _renumbered(edges: Edges, positions: IntArray) -> Edges:
    source, target = positions[edges.source], positions[edges.target]
    assert bool(np.all(source < target)), "an order that breaks an edge"
    by = np.lexsort((source, target))
    return Edges(edges.count, source[by].astype(np.int32), target[by].astype(np.int32), edges.kinds[by])


def _bind(
    binder: Binder, items: Sequence[WorkItem], platform: str
) -> tuple[list[int], list[Callable[..., Any]], list[Getter], list[int]]:
    kinds: list[int] = []
    calls: list[Callable[..., Any]] = []
    getters: list[Getter] = []
    outs: list[int] = []
    asynchronous: dict[int, int] = {}
    bind, plain = binder.bind, binder.plain
    for item in items:
        function = item.function
        if item.kind is CALL:
            if type(function) is str or type(function) is Kernel:
                function = _lookup(item, platform)
            kind = asynchronous.get(id(function))
            if kind is None:
                kind = asynchronous[id(function)] = LOOP if is_async_callable(function) else COMPUTE
        else:
            kind = COMPUTE if item.kind == BARRIER else COPY
        kinds.append(kind)
        slots = plain(item)
        if slots is not None:
            calls.append(function)
            getters.append(itemgetter(*slots))
            outs.append(item.first_result)
        else:
            call, getter, out = bind(item, function)
            calls.append(call)
            getters.append(getter)
            outs.append(out)
    return kinds, calls, getters, outs


def _lookup(item: WorkItem, platform: str) -> Callable[..., Any]:
    """The function that a name, or a kernel with a source per platform, stands for on ``platform``."""
    function = item.function
    try:
        return function.on(platform) if isinstance(function, Kernel) else library.lookup(function, platform)
    except PlanError as error:
        raise PlanError(f"item {item.name!r} (recorded at {item.site}): {error}") from None


def is_async_callable(function: Any) -> bool:
    """Whether calling ``function`` gives an awaitable: ``async def``, also behind partial, methods and ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, FunctionType):
        return inspect.iscoroutinefunction(function)
    if inspect.iscoroutinefunction(function):
        return True
    method = type(function).__dict__.get("__call__")
    return not isinstance(function, type) and inspect.iscoroutinefunction(method)


def _outputs(program: Program, positions: IntArray, keep: npt.NDArray[np.bool_]) -> dict[str, list[int]]:
    """Per output, the positions of the items after which its buffer holds its final value; marks it as kept."""
    writes = np.flatnonzero(program.access_modes > 1)
    writers = positions[np.searchsorted(program.offsets, writes, side="right") - 1]
    by = np.argsort(program.access_buffers[writes], kind="stable")
    buffers, writers = program.access_buffers[writes][by], writers[by]
    result = {}
    for name, value in program.outputs.items():
        index = value.buffer.index if isinstance(value, BufferSlice) else value.index
        keep[index] = True
        start, end = np.searchsorted(buffers, [index, index + 1])
        result[name] = sorted(set(writers[start:end].tolist()))
    return result


def _accesses(program: Program, order: IntArray) -> tuple[IntArray, IntArray]:
    """Per position, the distinct buffer slots that its item touches, as offsets and one flat array."""
    count, slots = len(order), max(1, program.buffer_count)
    positions = np.empty(count, dtype=np.int64)
    positions[order] = np.arange(count)
    per_access = np.repeat(positions, np.diff(program.offsets))
    pairs = np.sort(per_access * slots + program.access_buffers)
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    offsets = np.searchsorted(pairs, np.arange(count + 1) * slots)
    return offsets.astype(np.int64), pairs % slots


def _frees(offsets: IntArray, slots: IntArray, keep: npt.NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """Per position, the slots whose last use in that order it is."""
    count = len(offsets) - 1
    last = np.full(len(keep), -1, dtype=np.int64)
    np.maximum.at(last, slots, np.repeat(np.arange(count), np.diff(offsets)))
    dying = np.flatnonzero((last >= 0) & ~keep)
    frees: list[tuple[int, ...]] = [()] * count
    for position, slot in zip(last[dying].tolist(), dying.tolist(), strict=True):
        frees[position] += (slot,)
    return frees
