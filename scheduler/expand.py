"""Lay a program over memory spaces: which replica each access means, and the transfers that make replicas valid.

A buffer has at most one replica in each place. Walking the program in recorded order, a read that finds no valid
replica where it runs gets a transfer before it, and a write makes its own replica the only valid one: the protocol
of a directory of caches (Censier and Feautrier, IEEE Trans. Computers 1978), decided before anything runs. Hazards
are then derived anew over the replicas, so a transfer is ordered like any other item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from plait.devices import Segment
from plait.graph import BARRIER, BUFFER, RESOURCE, Buffer, BufferSlice, Edges, Program, WorkItem
from plait.graph.hazards import READ, WRITE, derive
from plait.graph.options import DEFAULT, Options
from plait.graph.reduce import transitive_reduction
from plait.graph.region import Region, is_empty
from plait.scheduler.containers import leaves

HOST = 0  # the place that is the host; places above are devices, in the scheduler's order
TRANSFER, SEGMENT = "transfer", "segment"


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the planner inserts: the replica of a buffer in ``target`` made from the one in ``source``.

    With ``source`` None it is made from nothing: allocated, and filled if ``filled`` says so.
    """

    index: int
    name: str
    site: str
    buffer: Buffer | None
    source: int | None
    target: int
    source_slot: int
    target_slot: int
    filled: bool = False
    copied: bool = False  # the replica will be changed, so it may not be the caller's own array
    options: Options = DEFAULT
    kind: str = TRANSFER
    function: None = None
    outputs: tuple[Buffer, ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: None = None


@dataclass(frozen=True, slots=True)
class SegmentItem:
    """Several device items as one: what a captured plan holds in their place."""

    index: int
    name: str
    site: str
    members: tuple[str, ...]
    segment: Segment
    options: Options
    kind: str = SEGMENT
    function: None = None
    outputs: tuple[Buffer, ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: None = None


@dataclass(frozen=True, slots=True)
class Expansion:
    """A program with its transfers: items in an order that its edges follow, and accesses over slots of a run's values.

    Slot b is buffer b's replica on the host, ``slots[place][b]`` the one in another place. ``literals`` maps
    identities of NumPy arrays that were given as plain arguments to buffer-like numbers of their own.
    """

    items: Sequence[WorkItem | Transfer]
    places: list[int]
    edges: Edges
    offsets: npt.NDArray[np.int64]
    slots_accessed: npt.NDArray[np.int64]
    modes: npt.NDArray[np.int8]
    slot_count: int
    slots: list[dict[int, int]]
    literals: dict[int, int]
    literal_values: list[Any]
    host_made: frozenset[int]

    def slot(self, place: int, buffer: int) -> int:
        """The slot of a buffer's replica in a place."""
        return buffer if place == HOST else self.slots[place].get(buffer, buffer)


def unexpanded(program: Program) -> Expansion:
    """The program as it stands: everything on the host."""
    return Expansion(
        items=program.items,
        places=[],
        edges=program.edges,
        offsets=program.offsets,
        slots_accessed=program.access_buffers,
        modes=program.access_modes,
        slot_count=program.buffer_count,
        slots=[],
        literals={},
        literal_values=[],
        host_made=frozenset(buffer.index for buffer in program.declared if buffer.kind == BUFFER),
    )


def expand(
    program: Program,
    places: Sequence[int | None],
    names: Sequence[str],
    bandwidth: npt.NDArray[np.float64] | None = None,
) -> Expansion:
    """Insert the transfers that ``places`` (a place per item, None where the data should decide) asks for.

    ``names`` are the names of the places, the host's first; ``bandwidth`` is bytes per second from a place (row) to a
    place (column). Of several valid replicas the one over the fastest link is copied, the host's among equals.
    """
    return _Expander(program, places, names, bandwidth).expand()


class _Expander:
    def __init__(
        self,
        program: Program,
        places: Sequence[int | None],
        names: Sequence[str],
        bandwidth: npt.NDArray[np.float64] | None,
    ) -> None:
        self.program = program
        self.bandwidth = None if bandwidth is None else bandwidth.tolist()
        self.wanted = places
        self.names = names
        self.declared = {buffer.index: buffer for buffer in program.declared}
        self.valid: dict[int, int] = {}  # buffer -> places with a valid replica, as bits
        self.slots: list[dict[int, int]] = [{} for _ in names]
        self.literals: dict[int, int] = {}
        self.literal_values: list[Any] = []
        self.host_made: set[int] = set()
        self.items: list[WorkItem | Transfer] = []
        self.places: list[int] = []
        self.place_of: list[int] = []
        self.offsets = [0]
        self.accessed: list[int] = []
        self.modes: list[int] = []
        self.regions: dict[int, Region] = {}
        for buffer in program.declared:
            self.valid[buffer.index] = 0 if buffer.kind == BUFFER else 1
        for item, place in zip(program.items, places, strict=True):
            if place != HOST and not item.is_plain:
                for value in _arrays([*item.args, *(item.kwargs or {}).values()]):
                    if id(value) not in self.literals:
                        index = program.buffer_count + len(self.literal_values)
                        self.literals[id(value)] = index
                        self.literal_values.append(value)
                        self.valid[index] = 1
        self.slot_count = program.buffer_count + len(self.literal_values)

    def expand(self) -> Expansion:
        program = self.program
        new_index: list[int] = []
        offsets = program.offsets.tolist()
        buffers, modes = program.access_buffers.tolist(), program.access_modes.tolist()
        for item, wanted in zip(program.items, self.wanted, strict=True):
            accesses = range(offsets[item.index], offsets[item.index + 1])
            place = self._by_data(item, [buffers[access] for access in accesses]) if wanted is None else wanted
            first = item.first_result
            results = range(first, first + item.options.outputs) if first >= 0 else range(0)
            for access in accesses:
                if buffers[access] not in results:
                    whole = program.regions.get(access) is None
                    self._make_valid(item, place, buffers[access], modes[access], whole)
            given: list[int] = []
            if place != HOST and not item.is_plain and self.literals:
                for array in _arrays([*item.args, *(item.kwargs or {}).values()]):
                    self._make_valid(item, place, self.literals[id(array)], READ, True)
                    given.append(self._slot(place, self.literals[id(array)]))
            new_index.append(len(self.items))
            for slot in given:
                self._access(slot, READ)
            for access in accesses:
                buffer = buffers[access]
                declared = self.declared.get(buffer)
                resource = declared is not None and declared.kind == RESOURCE
                slot = buffer if resource else self._slot(place, buffer)
                region = program.regions.get(access)
                if is_empty(region):
                    self._access(slot, READ)  # touches nothing, and yet there must be an array to slice
                    continue
                self._access(slot, modes[access], region)
                if modes[access] & WRITE:
                    self.valid[buffer] = 1 << place
            self._add(item, place)
            self.place_of.append(place)
        for value in program.outputs.values():
            buffer_ = value.buffer if isinstance(value, BufferSlice) else value
            self._make_valid(None, HOST, buffer_.index, READ, True)
        return self._finished(np.array(new_index, dtype=np.int64))

    def _finished(self, new_index: npt.NDArray[np.int64]) -> Expansion:
        offsets = np.array(self.offsets, dtype=np.int64)
        slots, modes = np.array(self.accessed, dtype=np.int64), np.array(self.modes, dtype=np.int8)
        over = derive(offsets, slots, modes, self.regions)
        own = self.program.edges
        edges = Edges.of(
            len(self.items),
            np.concatenate([over.source.astype(np.int64), new_index[own.source]]),
            np.concatenate([over.target.astype(np.int64), new_index[own.target]]),
            np.concatenate([over.kinds, own.kinds]),
        )
        return Expansion(
            items=tuple(self.items),
            places=self.places,
            edges=transitive_reduction(edges),
            offsets=offsets,
            slots_accessed=slots,
            modes=modes,
            slot_count=self.slot_count,
            slots=self.slots,
            literals=self.literals,
            literal_values=self.literal_values,
            host_made=frozenset(self.host_made),
        )

    def _by_data(self, item: WorkItem, buffers: list[int]) -> int:
        """Where a copy, a fill or a barrier belongs: where its target is, a barrier where what came before is."""
        if item.kind == BARRIER:
            edges = self.program.edges
            before = edges.source[edges.target == item.index].tolist()
            return max((self.place_of[index] for index in before), default=HOST)
        for buffer in buffers:
            valid = self.valid.get(buffer, 1)
            if valid and not valid & 1:
                return valid.bit_length() - 1
        return HOST

    def _slot(self, place: int, buffer: int) -> int:
        if place == HOST:
            return buffer
        slot = self.slots[place].get(buffer)
        if slot is None:
            slot = self.slots[place][buffer] = self.slot_count
            self.slot_count += 1
        return slot

    def _make_valid(self, item: WorkItem | None, place: int, index: int, mode: int, whole: bool) -> None:
        declared = self.declared.get(index)
        if declared is not None and declared.kind == RESOURCE:
            return
        valid = self.valid[index]
        if valid >> place & 1:
            return
        buffer = declared
        if declared is None and index < self.program.buffer_count:
            buffer = self.program.graph.buffer_at(index)
        if not valid:  # a run's own buffer that nothing has touched yet
            if place == HOST:
                self.host_made.add(index)
            else:
                self._transfer(item, buffer, index, None, place, filled=True)
            self.valid[index] = 1 << place
            return
        known = buffer is not None and buffer.shape is not None and buffer.dtype is not None
        if mode == WRITE and whole and known and place != HOST:  # every byte will be written: no need to bring them
            if index not in self.slots[place]:
                self._transfer(item, buffer, index, None, place)
            self.valid[index] = valid | 1 << place
            return
        self._transfer(item, buffer, index, self._nearest(valid, place), place)
        self.valid[index] = valid | 1 << place

    def _nearest(self, valid: int, place: int) -> int:
        """The place of the valid replica that is copied."""
        bandwidth = self.bandwidth
        if bandwidth is None or valid & (valid - 1) == 0:
            return HOST if valid & 1 else valid.bit_length() - 1
        sources = [source for source in range(len(self.names)) if valid >> source & 1]
        return max(sources, key=lambda source: (bandwidth[source][place], -source))

    def _transfer(
        self,
        item: WorkItem | None,
        buffer: Buffer | None,
        index: int,
        source: int | None,
        target: int,
        *,
        filled: bool = False,
    ) -> None:
        label = buffer.name if buffer is not None else f"argument of {item.name if item else '?'}"
        name = f"{label} on {self.names[target]}" if source is None else f"{label} to {self.names[target]}"
        source_slot = -1 if source is None else self._slot(source, index)
        target_slot = self._slot(target, index)
        if source is not None:
            self._access(source_slot, READ)
        self._access(target_slot, WRITE)
        transfer = Transfer(
            index=len(self.items),
            name=name,
            site=item.site if item is not None else buffer.site if buffer is not None else "?",
            buffer=buffer,
            source=source,
            target=target,
            source_slot=source_slot,
            target_slot=target_slot,
            filled=filled,
            copied=index in self.program.mutated,
            options=DEFAULT if item is None or not item.options.priority else Options(priority=item.options.priority),
        )
        self._add(transfer, target if target != HOST else source or HOST)

    def _access(self, slot: int, mode: int, region: Region | None = None) -> None:
        if region is not None:
            self.regions[len(self.accessed)] = region
        self.accessed.append(slot)
        self.modes.append(mode)

    def _add(self, item: WorkItem | Transfer, place: int) -> None:
        self.items.append(item)
        self.places.append(place)
        self.offsets.append(len(self.accessed))


def _arrays(parts: list[Any]) -> list[np.ndarray[Any, Any]]:
    """The NumPy arrays among literal arguments, in nested containers too."""
    return [part for part in leaves(parts) if isinstance(part, np.ndarray) and not part.dtype.hasobject]
