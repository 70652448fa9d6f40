"""A plan: a program compiled for devices, and what can be asked of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plait.errors import PlanError
from plait.graph import Edges, Program, WorkItem
from plait.graph.analysis import downward_rank, upward_rank
from plait.scheduler.bind import Getter, Values
from plait.scheduler.capture import capture_plan
from plait.scheduler.device_plan import DevicePart
from plait.scheduler.expand import Expansion, Transfer
from plait.scheduler.explain import explain
from plait.scheduler.memory.usage import MemoryUse, plan_memory
from plait.scheduler.rows import Rows, flat
from plait.scheduler.views import plan_view

if TYPE_CHECKING:
    from plait.graph.drawing import View

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
        return capture_plan(self)

    @functools.cached_property
    def memory(self) -> Mapping[str, MemoryUse]:
        """Per memory space, the bytes that a run of the plan needs there, told before it runs."""
        return plan_memory(self)

    def explain(self) -> str:
        """In words: what runs where, in what order, and what each item waits for."""
        return explain(self)

    def show(self, *, color: str | None = None, fold: bool | Collection[str] | None = None) -> View:
        """A picture of the plan, transfers included: as ``Graph.show``, coloured also by ``"stream"``."""
        return plan_view(self, color, fold)

    def _repr_html_(self) -> str:
        return self.show().html

    def _repr_svg_(self) -> str:
        return self.show().svg


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
