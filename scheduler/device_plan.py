"""What a plan knows of device items: their streams, how each edge is kept, and whose bytes may go early."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from plait.graph import CALL, Edges, WorkItem
from plait.scheduler.expand import HOST, Expansion, Transfer
from plait.scheduler.kinds import IN, LAUNCH, OUT, ROLE_WORDS
from plait.scheduler.rows import Rows, flat

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan

IntArray = npt.NDArray[np.int64]


def transfer_call() -> None:
    """Stands in a plan for what the lanes of a device do themselves."""
    raise AssertionError("a transfer is carried out by a device's lane, not called")


@dataclass(frozen=True, eq=False)
class DevicePart:
    """Per position, flat: the device items' streams and waits.

    ``lanes[p]`` is the stream among those of p's device and role, -1 on the host, and ``previous[p]`` the item before p
    there, -1 if there is none. ``early[p]`` are the items that lose a wait when p is enqueued, ``late[p]`` those that
    lose it when p is done. ``before[p]`` are the device items that p is enqueued behind, and ``guarded[p]`` says that
    some path to p comes from another device: that device may be lost and p computed from nothing, so p counts as done
    only when all before it are. ``records[p]``: another stream waits for p. ``local`` counts the items that use a slot
    which lives and dies in one stream, whose bytes may therefore go back to that stream's pool once the last of them
    is enqueued.
    """

    lanes: list[int]
    previous: array[int]
    early: Rows
    late: Rows
    before: Rows
    guarded: bytearray
    records: bytearray
    local: dict[int, int]
    local_at: Rows
    local_made: Rows
    priorities: list[int]
    devices: tuple[int, ...]

    def stream(self, plan: Plan, position: int) -> str | None:
        """The name of the stream that the item is enqueued in; None for a host item."""
        place, role = divmod(plan.kinds[position], 3)
        if place == HOST:
            return None
        return stream_name(plan.places[place], role, self.lanes[position])


def stream_name(device: str, role: int, lane: int) -> str:
    """``cuda:0/compute:2``; the copy streams are ``in``, ``out`` and, from the device ``cuda:1``, ``peer:1``."""
    if role == LAUNCH:
        return f"{device}/compute:{lane}"
    return f"{device}/peer:{lane - 1}" if role == IN and lane else f"{device}/{ROLE_WORDS[role]}"


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
    count, targets = len(kinds), waits.target
    offsets, sources = waits.predecessors()
    lanes = _lanes(items, kinds, cost.tolist(), Rows(flat(offsets), flat(sources)), streams)
    priorities = [item.options.priority for item in items]
    kind, stream = np.array(kinds, dtype=np.int64), _numbered(zip(kinds, lanes, priorities, strict=True))
    begun = (kind >= 3) & (kind % 3 != OUT)  # these count as begun before they are done
    early = begun[sources] & (kind[targets] >= 3)
    records = np.zeros(count, dtype=np.uint8)
    records[sources[early & (stream[sources] != stream[targets])]] = 1
    local, local_at = _local(items, kinds, lanes, access_offsets.tolist(), access_slots.tolist(), expansion)
    return DevicePart(
        lanes=lanes,
        previous=_previous(stream, kind),
        early=Rows.grouped(count, sources[early], targets[early]),
        late=Rows.grouped(count, sources[~early], targets[~early]),
        before=Rows.grouped(count, targets[early], sources[early]),
        guarded=_guarded(kind, sources[early], targets[early]),
        records=bytearray(records.tobytes()),
        local=local,
        local_at=local_at,
        local_made=Rows.of(_made(item, kinds[position] // 3, local, expansion) for position, item in enumerate(items)),
        priorities=priorities,
        devices=tuple(sorted({kind // 3 for kind in kinds if kind >= 3})),
    )


def _numbered(streams: Iterable[tuple[int, int, int]]) -> IntArray:
    known: dict[tuple[int, int, int], int] = {}
    return np.array([known.setdefault(each, len(known)) for each in streams], dtype=np.int64)


def _previous(stream: IntArray, kind: IntArray) -> array[int]:
    last: dict[int, int] = {}
    found = array("i", [-1]) * len(stream)
    for position, (each, needs) in enumerate(zip(stream.tolist(), kind.tolist(), strict=True)):
        if needs >= 3:
            found[position] = last.get(each, -1)
            last[each] = position
    return found


def _guarded(kind: IntArray, sources: IntArray, targets: IntArray) -> bytearray:
    """What some path of these edges leads to from another device; edges by ascending target."""
    guarded = bytearray(len(kind))
    across = (kind[sources] // 3 != kind[targets] // 3).tolist()
    for source, target, other in zip(sources.tolist(), targets.tolist(), across, strict=True):
        if other or guarded[source]:
            guarded[target] = 1
    return guarded


def _lanes(
    items: Sequence[WorkItem | Transfer],
    kinds: list[int],
    cost: list[float],
    predecessors: Rows,
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
            lane = 0
            if isinstance(item, Transfer) and item.source is not None and item.target != HOST:
                lane = item.source  # a stream of its own for each device, whose slowness is no other's
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
) -> tuple[dict[int, int], Rows]:
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
    mine = (
        [slot for slot in slots[offsets[position] : offsets[position + 1]] if slot in local]
        for position in range(len(items))
    )
    return local, Rows.of(mine)
