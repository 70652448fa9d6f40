"""Compile a program for given devices: items placed and ordered, waits and value slots laid out in flat lists."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plait.devices import Device, library
from plait.errors import PlanError
from plait.graph import BARRIER, CALL, CONSTANT, INPUT, RESOURCE, Access, Buffer, BufferSlice, Edges, Program, WorkItem
from plait.graph.analysis import downward_rank, upward_rank
from plait.graph.hazards import READ
from plait.scheduler.assign import assign
from plait.scheduler.bind import ON_HOST, Binder, Getter, Place, Values
from plait.scheduler.costing import by_option, filled, known_seconds, touched_bytes
from plait.scheduler.device_plan import IN, LAUNCH, OUT, DevicePart, device_part, transfer_call
from plait.scheduler.expand import HOST, Expansion, Transfer, expand, unexpanded
from plait.scheduler.explain import explain
from plait.scheduler.links import links
from plait.scheduler.place import Places
from plait.scheduler.policies import Policy, Problem, find
from plait.scheduler.policies.cost_model import CostModel
from plait.scheduler.rows import Rows, flat

if TYPE_CHECKING:
    from plait.graph.drawing import View
    from plait.scheduler.memory import MemoryUse

COMPUTE, COPY, LOOP = 0, 1, 2
KIND_WORDS = ("compute", "copy", "loop")

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """A program compiled for devices: immutable, reusable by any number of runs at once.

    Items are renumbered by urgency: position 0 is the most urgent, and every item stands behind all that it waits
    for. On the host an item may run on any stream of its kind as soon as its waits are done, so every edge is an
    event wait of its own. A device item has a stream: between items of one stream an edge is kept by stream order,
    since the earlier one is enqueued first; between two streams by an event wait; towards the host by an awaited event.
    """

    program: Program
    work: Sequence[WorkItem | Transfer]
    edges: Edges = field(repr=False)
    device: str
    places: tuple[str, ...]
    policy: str
    streams: tuple[int, int]
    order: IntArray
    kinds: list[int]
    cost: npt.NDArray[np.float64]
    known_cost: npt.NDArray[np.float64] = field(repr=False)
    waits: Edges
    calls: list[Callable[..., Any]] = field(repr=False)
    getters: list[Getter] = field(repr=False)
    outs: list[int] = field(repr=False)
    template: Values = field(repr=False)
    accesses: tuple[IntArray, IntArray] = field(repr=False)
    keep: npt.NDArray[np.bool_] = field(repr=False)
    output_positions: dict[str, list[int]] = field(repr=False)
    groups: dict[int, tuple[str, ...]] = field(repr=False)
    host_made: frozenset[int]
    touched_on_host: frozenset[int]
    straight: bool
    chain: bool
    on_device: DevicePart | None = field(repr=False)
    expansion: Expansion = field(repr=False)

    def __repr__(self) -> str:
        return f"<Plan of {self.program.graph.name!r}: {len(self.calls)} items on {self.device}>"

    @property
    def items(self) -> list[WorkItem | Transfer]:
        """The items by position, most urgent first, with the transfers that the planner inserted."""
        items = self.work
        return [items[index] for index in self.order.tolist()]

    def item(self, position: int) -> WorkItem | Transfer:
        """The item at ``position``."""
        return self.work[int(self.order[position])]

    def place(self, position: int) -> str:
        """The name of the device that the item at ``position`` runs on."""
        return self.places[self.kinds[position] // 3]

    def stream(self, position: int) -> str | None:
        """The stream that a device item is enqueued in; None on the host, where any stream may take it."""
        return None if self.on_device is None else self.on_device.stream(self, position)

    def position(self, name: str) -> int:
        """The position of the item called ``name``; PlanError if there is none."""
        index = self._index_of.get(name)
        if index is None:
            raise PlanError(f"no item is called {name!r} in graph {self.program.graph.name!r}")
        return int(self._positions[index])

    @functools.cached_property
    def _index_of(self) -> dict[str, int]:
        return {item.name: index for index, item in enumerate(self.work)}

    @functools.cached_property
    def _positions(self) -> IntArray:
        positions = np.empty(len(self.order), dtype=np.int64)
        positions[self.order] = np.arange(len(self.order))
        return positions

    @functools.cached_property
    def outputs_at(self) -> dict[int, list[str]]:
        """Per position, the outputs of whose last writers it is one."""
        found: dict[int, list[str]] = {}
        for name, writers in self.output_positions.items():
            for writer in writers:
                found.setdefault(writer, []).append(name)
        return found

    @functools.cached_property
    def outputs_ending(self) -> dict[int, list[str]]:
        """The outputs that are there once every item before a position is done."""
        found: dict[int, list[str]] = {}
        for name, writers in self.output_positions.items():
            if writers:
                found.setdefault(writers[-1] + 1, []).append(name)
        return found

    @functools.cached_property
    def output_ends(self) -> list[int]:
        """The positions of ``outputs_ending``, ascending."""
        return sorted(self.outputs_ending)

    # What only counted runs need: made when the first one needs it.

    @functools.cached_property
    def successors(self) -> Rows:
        """Per position, those that wait for its item."""
        offsets, targets = self.waits.successors()
        return Rows(flat(offsets), flat(targets))

    @functools.cached_property
    def touched(self) -> Rows:
        """Per position, the slots that its item touches."""
        return Rows(flat(self.accesses[0]), flat(self.accesses[1]))

    @functools.cached_property
    def frees(self) -> list[tuple[int, ...]]:
        """Per position, the slots that nobody needs after it in a straight run."""
        return _frees(*self.accesses, self.keep)

    @functools.cached_property
    def rest(self) -> list[float]:
        """Per position, the seconds of the longest chain of known costs from its item's start to the end."""
        rest: list[float] = upward_rank(self.waits, self.known_cost).tolist()
        return rest

    def slack(self, deadline: float) -> npt.NDArray[np.float64]:
        """Per position, how much later than at its earliest an item may start for a run to end within ``deadline``
        seconds, by known costs: float64, shape (items,); negative where it cannot."""
        slack: npt.NDArray[np.float64] = deadline - downward_rank(self.waits, self.known_cost) - np.array(self.rest)
        return slack

    @property
    def captured(self) -> bool:
        """Whether segments of it are graphs of the driver."""
        return any(item.kind == "segment" for item in self.work)

    def capture(self) -> Plan:
        """The same plan with each device's part as few graphs of the driver, launched again in every run.

        The first run calls every item, which compiles kernels; the second captures them, and is launched like those
        after it. Between host items, copies and other devices lie several graphs; an item that cannot be captured (it
        waits for the device, say) is called between two, and ``explain()`` names it and says why. What items keep for
        themselves (a counter, a random state) is kept as it was when captured. PlanError if there is nothing to
        capture.
        """
        from plait.scheduler.capture import capture_plan  # noqa: PLC0415  capture imports this module

        return capture_plan(self)

    @functools.cached_property
    def memory(self) -> Mapping[str, MemoryUse]:
        """Per memory space, the bytes that a run of the plan needs there, told before it runs."""
        from plait.scheduler.memory.usage import plan_memory  # noqa: PLC0415  which imports this package

        return plan_memory(self)

    def explain(self) -> str:
        """In words: what runs where, in what order, and what each item waits for."""
        return explain(self)

    def show(self, *, color: str | None = None, fold: bool | Collection[str] | None = None) -> View:
        """A picture of the plan, transfers included: as ``Graph.show``, coloured also by ``"stream"``."""
        from plait.scheduler.views import plan_view  # noqa: PLC0415  views imports this module

        return plan_view(self, color, fold)

    def _repr_html_(self) -> str:
        return self.show().html

    def _repr_svg_(self) -> str:
        return self.show().svg


@contextmanager
def collector_paused(count: int, least: int = 10_000) -> Iterator[None]:
    """Compiling makes objects by the million and no garbage, and each full collection would visit them all."""
    pause = count >= least and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def compile_plan(
    program: Program,
    devices: Sequence[Device],
    streams: tuple[int, int],
    policy: str | Policy,
    model: CostModel | None = None,
    limits: Sequence[int | None] | None = None,
) -> Plan:
    """Lay ``program`` over the host's ``streams`` (compute, copy) and the devices.

    Each device has as many compute streams as the host. ``model`` is asked for costs that items do not give. Under
    ``limits`` (bytes per place) items are put in an order that moves few bytes, if the policy's moves more. PlanError
    names what cannot be placed.
    """
    chosen = find(policy)
    places = Places(devices)
    nbytes = () if model is None else touched_bytes(program)
    expansion, placed = _expansion(program, places, chosen, streams[0], model, nbytes)
    items, edges = expansion.items, expansion.edges
    count = len(items)
    known = known_seconds(items, "host", model, nbytes)
    there = np.array(expansion.places, dtype=np.int64)
    of_kind: dict[str, list[int]] = {}
    for place in np.unique(there[there > 0]).tolist():
        of_kind.setdefault(places.devices[place - 1].platform, []).append(place)
    for kind, alike in of_kind.items():
        mine = np.isin(there, alike)
        known[mine] = known_seconds(items, kind, model, nbytes)[mine]
    cost = filled(known)
    urgency = chosen.order(Problem.of(cost[:, None], edges)) if placed is None else _spread_urgency(placed, expansion)
    order = _order(items, edges, urgency)
    if limits is not None and any(limit is not None for limit in limits):
        from plait.scheduler.memory.order import memory_order  # noqa: PLC0415  which imports this package

        order = _by_priority(memory_order(program, expansion, order, limits), items, edges)
    positions = np.empty(count, dtype=np.int64)
    positions[order] = np.arange(count)
    waits = _renumbered(edges, positions)
    binder = Binder(program, expansion.slot_count, expansion.literal_values)
    kinds, calls, getters, outs = _bind(binder, expansion, order.tolist(), places)
    slots = len(binder.template)
    binder.template += [None, None]
    keep = np.zeros(slots + 2, dtype=bool)
    keep[expansion.slot_count :] = True
    output_positions = _outputs(program, expansion, positions, keep)
    for buffer in program.declared:
        if buffer.kind in (CONSTANT, RESOURCE):
            keep[buffer.index] = True
    access_offsets, access_slots = _accesses(expansion, order)
    group_limits = program.group_limits
    groups = {
        position: limited
        for position, index in enumerate(order.tolist() if group_limits else [])
        if (limited := tuple(name for name in items[index].options.groups if group_limits[name] is not None))
    }
    on_device = None
    if expansion.places:
        by_position = [items[index] for index in order.tolist()]
        on_device = device_part(
            by_position, kinds, cost[order], waits, streams[0], access_offsets, access_slots, expansion
        )
    return Plan(
        program=program,
        work=items,
        edges=edges,
        device="host",
        places=places.names,
        policy=chosen.name,
        streams=streams,
        order=order,
        kinds=kinds,
        cost=cost[order],
        known_cost=np.nan_to_num(known, nan=0.0)[order],
        waits=waits,
        calls=calls,
        getters=getters,
        outs=[slots + 1 if out < 0 else out for out in outs],
        template=binder.template,
        accesses=(access_offsets, access_slots),
        keep=keep,
        output_positions=output_positions,
        groups=groups,
        host_made=_wanted(expansion.host_made, access_slots, keep),
        touched_on_host=_touched_on_host(program, expansion),
        straight=not groups and not any(kinds),
        chain=int(np.count_nonzero(waits.target - waits.source == 1)) >= count - 1,
        on_device=on_device,
        expansion=expansion,
    )


def rearranged(plan: Plan, **changes: Any) -> Plan:
    """A plan with other items in other positions."""
    return replace(plan, straight=False, chain=False, **changes)


def _expansion(
    program: Program,
    places: Places,
    policy: Policy,
    lanes: int,
    model: CostModel | None,
    nbytes: Sequence[int | None],
) -> tuple[Expansion, npt.NDArray[np.float64] | None]:
    """The program as it is if all its items run on the host, else with the transfers that devices need; and the urgency
    by program item that came with the placement, if there was a choice."""
    items = program.items
    if places.host is not None and not places.devices and not any(by_option(items, lambda options: options.device)):
        return unexpanded(program), None
    asynchronous = [item.kind is CALL and is_async_callable(item.function) for item in items]
    found = assign(program, places, policy, lambda item: asynchronous[item.index], lanes, model, nbytes)
    if not any(found.places):
        return unexpanded(program), found.urgency
    bandwidth = links(places.devices)[0] if len(places.devices) > 1 else None
    return expand(program, found.places, places.names, bandwidth), found.urgency


def _spread_urgency(urgency: npt.NDArray[np.float64], expansion: Expansion) -> npt.NDArray[np.float64]:
    """Urgency by program item, for the items with transfers between them: a transfer inherits that of what waits for
    it, and what nothing waits for comes right behind what it brings."""
    spread = np.full(len(expansion.items), -np.inf)
    for index, item in enumerate(expansion.items):
        if not isinstance(item, Transfer):
            spread[index] = urgency[item.index]
    last = expansion.edges.out_degree() == 0
    for source, target in zip(expansion.edges.source.tolist(), expansion.edges.target.tolist(), strict=True):
        if last[target] and isinstance(expansion.items[target], Transfer):
            behind = spread[source]
            spread[target] = behind if np.isinf(spread[target]) else min(spread[target], behind)
    return spread


def _touched_on_host(program: Program, expansion: Expansion) -> frozenset[int]:
    """The inputs and constants that are read as NumPy arrays: by items on the host, or as outputs."""
    touched: set[int] = set()
    if expansion.places:
        on_host = np.repeat(np.array(expansion.places) == HOST, np.diff(expansion.offsets))
        touched.update(expansion.slots_accessed[on_host].tolist())
        for value in program.outputs.values():
            touched.add(value.buffer.index if isinstance(value, BufferSlice) else value.index)
    given = (buffer.index for buffer in program.declared if buffer.kind in (CONSTANT, INPUT))
    return frozenset(index for index in given if index in touched)


def _order(items: Sequence[WorkItem | Transfer], edges: Edges, urgency: npt.NDArray[np.float64]) -> IntArray:
    """Item indices, most urgent first: user priority (inherited by what an item waits for), then the policy's word."""
    count = len(items)
    if urgency.shape != (count,):
        raise PlanError(f"the policy returned {urgency.shape} urgencies for {count} items")
    priority = np.array(by_option(items, lambda options: options.priority), dtype=np.float64)
    for values in (priority, urgency):
        _inherit(values, edges)
    return np.lexsort((np.arange(count), -urgency, -priority)).astype(np.int64)


def _by_priority(order: IntArray, items: Sequence[WorkItem | Transfer], edges: Edges) -> IntArray:
    """The same order, but what the user called more urgent first."""
    priority = np.array(by_option(items, lambda options: options.priority), dtype=np.float64)
    _inherit(priority, edges)
    return order[np.argsort(-priority[order], kind="stable")]


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
    binder: Binder, expansion: Expansion, order: list[int], places: Places
) -> tuple[list[int], list[Callable[..., Any]], list[Getter], list[int]]:
    kinds: list[int] = []
    calls: list[Callable[..., Any]] = []
    getters: list[Getter] = []
    outs: list[int] = []
    asynchronous: dict[int, int] = {}
    bind, plain = binder.bind, binder.plain
    where = [ON_HOST] + [
        Place(slots, {each: slots[index] for each, index in expansion.literals.items() if index in slots})
        for slots in expansion.slots[1:]
    ]
    on_host = not expansion.places
    for index in order:
        item = expansion.items[index]
        place = HOST if on_host else expansion.places[index]
        if isinstance(item, Transfer):
            kinds.append(3 * place + (OUT if item.target == HOST else LAUNCH if item.source is None else IN))
            calls.append(transfer_call)
            getters.append(itemgetter(slice(0, 0)))
            outs.append(item.target_slot)
            continue
        function = item.function
        if item.kind is CALL:
            if type(function) is str or hasattr(function, "on"):
                function = _lookup(item, "host" if place == HOST else places.devices[place - 1].platform)
            kind = asynchronous.get(id(function))
            if kind is None:
                kind = asynchronous[id(function)] = LOOP if is_async_callable(function) else COMPUTE
        else:
            kind = COMPUTE if item.kind == BARRIER else COPY
        kinds.append(kind if place == HOST else 3 * place + LAUNCH)
        slots = plain(item) if place == HOST else None
        if slots is not None:
            calls.append(function)
            getters.append(itemgetter(*slots))
            outs.append(item.first_result)
        else:
            call, getter, out = bind(item, function, where[place])
            calls.append(call)
            getters.append(getter)
            outs.append(out)
    return kinds, calls, getters, outs


def _lookup(item: WorkItem, platform: str) -> Callable[..., Any]:
    try:
        if hasattr(item.function, "on"):
            _check_writes(item)
            return item.function.on(platform)  # type: ignore[no-any-return]
        return library.lookup(item.function, platform)
    except PlanError as error:
        raise PlanError(f"item {item.name!r} (recorded at {item.site}): {error}") from None


def _check_writes(item: WorkItem) -> None:
    """A kernel from source says what it writes; PlanError if that was recorded as read only."""
    for index in getattr(item.function, "writes", None) or ():
        arg = item.args[index] if index < len(item.args) else None
        if isinstance(arg, Buffer | BufferSlice) or (isinstance(arg, Access) and arg.mode == READ):
            raise PlanError(
                f"the kernel writes its argument {index}, which was recorded as read: "
                "pass plait.update(...) of it, or plait.write(...) if it overwrites every element"
            )


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


def _outputs(
    program: Program, expansion: Expansion, positions: IntArray, keep: npt.NDArray[np.bool_]
) -> dict[str, list[int]]:
    """Per output, the positions of the items after which its buffer holds its final value; marks it as kept."""
    writes = np.flatnonzero(expansion.modes > 1)
    writers = positions[np.searchsorted(expansion.offsets, writes, side="right") - 1]
    by = np.argsort(expansion.slots_accessed[writes], kind="stable")
    buffers, writers = expansion.slots_accessed[writes][by], writers[by]
    result = {}
    for name, value in program.outputs.items():
        index = value.buffer.index if isinstance(value, BufferSlice) else value.index
        keep[index] = True
        start, end = np.searchsorted(buffers, [index, index + 1])
        result[name] = sorted(set(writers[start:end].tolist()))
    return result


def _accesses(expansion: Expansion, order: IntArray) -> tuple[IntArray, IntArray]:
    """Per position, the distinct buffer slots that its item touches, as offsets and one flat array."""
    count, slots = len(order), max(1, expansion.slot_count)
    positions = np.empty(count, dtype=np.int64)
    positions[order] = np.arange(count)
    per_access = np.repeat(positions, np.diff(expansion.offsets))
    pairs = np.sort(per_access * slots + expansion.slots_accessed)
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    offsets = np.searchsorted(pairs, np.arange(count + 1) * slots)
    return offsets.astype(np.int64), pairs % slots


def _wanted(host_made: frozenset[int], slots: IntArray, keep: npt.NDArray[np.bool_]) -> frozenset[int]:
    """Those of a run's own buffers that an item uses or that are outputs: the others need not be made."""
    made = np.array(sorted(host_made), dtype=np.int64)
    return frozenset(made[np.isin(made, slots) | keep[made]].tolist())


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
