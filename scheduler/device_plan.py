"""What a plan knows of device items: their streams, how each edge is kept, and whose bytes may go early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plait.graph import CALL, Edges, WorkItem
from plait.scheduler.expand import HOST, Expansion, Transfer

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan

# What a device item needs to start is a lane of its device: kind 3 * place + role.
LAUNCH, IN, OUT = 0, 1, 2
LOOP = 2  # of the host's kinds: what the trio loop awaits
ROLE_WORDS = ("compute", "in", "out")

IntArray = npt.NDArray[np.int64]


def transfer_call() -> None:
    """Stands in a plan for what the lanes of a device do themselves."""
    raise AssertionError("a transfer is carried out by a device's lane, not called")


@dataclass(frozen=True, eq=False)
class DevicePart:
    """Per position, flat: the device items' streams and waits.

    ``lanes[p]`` is the stream among those of p's device and role, -1 on the host. ``early[p]`` are the items that lose
    a wait when p is enqueued, ``late[p]`` those that lose it when p is done. ``before[p]`` are the device items that p
    is enqueued behind, and ``guarded[p]`` says that some path to p comes from another device: that device may be lost
    and p computed from nothing, so p counts as done only when all before it are. ``records[p]``: another stream waits
    for p. ``local`` counts the items that use a slot which lives and dies in one stream, whose bytes may therefore go
    back to that stream's pool once the last of them is enqueued.
    """

    lanes: list[int]
    early: list[tuple[int, ...]]
    late: list[tuple[int, ...]]
    before: list[tuple[int, ...]]
    guarded: bytearray
    records: bytearray
    local: dict[int, int]
    local_at: dict[int, tuple[int, ...]]
    local_made: list[tuple[int, ...]]
    priorities: list[int]
    devices: tuple[int, ...]

    def stream(self, plan: Plan, position: int) -> str | None:
        """The name of the stream that the item is enqueued in; None for a host item."""
        place, role = divmod(plan.kinds[position], 3)
        if place == HOST:
            return None
        return stream_name(plan.places[place], role, self.lanes[position])


def stream_name(device: str, role: int, lane: int) -> str:
    """``cuda:0/compute:2``; the copy streams are ``in``, ``out`` and, from other devices, ``peer``."""
    if role == LAUNCH:
        return f"{device}/compute:{lane}"
    return f"{device}/{'peer' if role == IN and lane else ROLE_WORDS[role]}"


def device_part(
    items: Sequence[Any],
    kinds: list[int],
    cost: npt.NDArray[np.float64],
    waits: Edges,
    streams: int,
    access_offsets: IntArray,
    access_slots: IntArray,
    expansion: Expansion,
) -> DevicePart:
    """Give every device item a stream, and sort its edges by how each is kept."""
    count = len(kinds)
    offsets, sources = waits.predecessors()
    starts, flat = offsets.tolist(), sources.tolist()
    predecessors = [flat[starts[position] : starts[position + 1]] for position in range(count)]
    lanes = _lanes(items, kinds, cost.tolist(), predecessors, streams)
    stream_of = [(kind, lane, item.options.priority) for kind, lane, item in zip(kinds, lanes, items, strict=True)]
    on_device = [kind >= 3 for kind in kinds]
    enqueued = [kind >= 3 and kind % 3 != OUT for kind in kinds]  # what counts as begun before it is done
    early: list[list[int]] = [[] for _ in range(count)]
    late: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    guarded = bytearray(count)
    records = bytearray(count)
    for position in range(count):
        for source in predecessors[position]:
            if enqueued[source] and on_device[position]:
                early[source].append(position)
                before[position].append(source)
                if stream_of[source] != stream_of[position]:
                    records[source] = 1
                if guarded[source] or kinds[source] // 3 != kinds[position] // 3:
                    guarded[position] = 1
            else:
                late[source].append(position)
    local, local_at = _local(items, kinds, lanes, access_offsets.tolist(), access_slots.tolist(), expansion)
    return DevicePart(
        lanes=lanes,
        early=[tuple(each) for each in early],
        late=[tuple(each) for each in late],
        before=[tuple(each) for each in before],
        guarded=guarded,
        records=records,
        local=local,
        local_at=local_at,
        local_made=[_made(item, kinds[position] // 3, local, expansion) for position, item in enumerate(items)],
        priorities=[item.options.priority for item in items],
        devices=tuple(sorted({kind // 3 for kind in kinds if kind >= 3})),
    )


def _lanes(
    items: Sequence[WorkItem | Transfer],
    kinds: list[int],
    cost: list[float],
    predecessors: list[list[int]],
    streams: int,
) -> list[int]:
    """A stream for each device item, in order of urgency.

    An item takes over the stream of the predecessor that it would wait for longest, if nothing has been put behind
    that one yet; otherwise it gets the stream that is free first.
    """
    free: dict[int, list[float]] = {}
    last: dict[tuple[int, int], int] = {}
    finish = [0.0] * len(kinds)
    lanes = [-1] * len(kinds)
    for position, kind in enumerate(kinds):
        item, before = items[position], predecessors[position]
        ready = max((finish[source] for source in before), default=0.0)
        if kind < 3:
            finish[position] = ready + cost[position]
            continue
        if kind % 3 != LAUNCH:
            lane = int(isinstance(item, Transfer) and item.source not in (HOST, None) and item.target != HOST)
            finish[position] = ready + cost[position]
        else:
            at = free.setdefault(kind, [0.0] * streams)
            heirs = [source for source in before if kinds[source] == kind and last[kind, lanes[source]] == source]
            if heirs:
                lane = lanes[max(heirs, key=lambda source: finish[source])]
            else:
                lane = min(range(streams), key=lambda each: (max(at[each], ready), at[each], each))
            at[lane] = finish[position] = max(at[lane], ready) + cost[position]
        lanes[position] = lane
        last[kind, lane] = position
    return lanes


def _made(item: Any, place: int, local: dict[int, int], expansion: Expansion) -> tuple[int, ...]:
    if place == HOST or item.kind is not CALL:
        return ()
    slots = (expansion.slot(place, output.index) for output in item.outputs)
    return tuple(slot for slot in slots if slot in local)


def _local(
    items: Sequence[WorkItem | Transfer],
    kinds: list[int],
    lanes: list[int],
    offsets: list[int],
    slots: list[int],
    expansion: Expansion,
) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """Slots that are the result of a device item and used in its stream alone: how many use each, and per position."""
    home: dict[int, Any] = {}
    uses: dict[int, int] = {}
    results: set[int] = set()
    for position, item in enumerate(items):
        place, role = divmod(kinds[position], 3)
        key = (kinds[position], lanes[position], item.options.priority) if place != HOST and role == LAUNCH else None
        if key is not None and item.kind is CALL:
            results.update(expansion.slot(place, output.index) for output in item.outputs)
        for slot in slots[offsets[position] : offsets[position + 1]]:
            home[slot] = key if home.setdefault(slot, key) == key else None
            uses[slot] = uses.get(slot, 0) + 1
    local = {slot: uses[slot] for slot, key in home.items() if key is not None and slot in results}
    local_at: dict[int, tuple[int, ...]] = {}
    for position in range(len(items)):
        mine = tuple(slot for slot in slots[offsets[position] : offsets[position + 1]] if slot in local)
        if mine:
            local_at[position] = mine
    return local, local_at
