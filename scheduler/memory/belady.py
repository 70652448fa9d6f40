"""How many bytes an order of the items would move under limits, if what is needed last always made room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

_NEVER = 1 << 60


@dataclass(frozen=True, eq=False)
class Demand:
    """What items use, flat: item i uses ``uses[i]`` (slots), makes ``made[i]`` of them anew and changes ``changed[i]``.

    Per slot: its ``size`` in bytes (0: the caller's), its ``place``, whether it is kept to the end, and whether its
    bytes are elsewhere as soon as it is made (``clean``). ``limit`` per place is None where there is none.
    """

    uses: list[tuple[int, ...]]
    made: list[tuple[int, ...]]
    changed: list[tuple[int, ...]]
    size: list[int]
    place: list[int]
    kept: list[bool]
    clean: list[bool]
    limit: Sequence[int | None]


def bytes_moved(demand: Demand, order: Sequence[int]) -> int:
    """Bytes moved out and back in one space after the other, serially, by Belady's rule (IBM Systems Journal 1966)."""
    size, place, limit = demand.size, demand.place, demand.limit
    users: dict[int, list[int]] = {}
    for step, item in enumerate(order):
        for slot in demand.uses[item]:
            if size[slot] and limit[place[slot]] is not None:
                users.setdefault(slot, []).append(step)
    seen = dict.fromkeys(users, 0)
    next_use: dict[int, int] = {}  # of what is resident
    dirty: set[int] = set()
    away: set[int] = set()
    held = [0] * len(limit)
    farthest: list[list[tuple[int, int]]] = [[] for _ in limit]
    moved = 0
    for item in order:
        mine = [slot for slot in demand.uses[item] if slot in users]
        for slot in mine:
            if slot in next_use:
                continue
            where = place[slot]
            most = limit[where]
            assert most is not None
            held[where] += size[slot]
            moved += _evict(demand, where, most, held, farthest[where], next_use, dirty, away, mine)
            if slot in away:
                away.discard(slot)
                moved += 0 if slot in demand.made[item] else size[slot]
            next_use[slot] = -1
        for slot in mine:
            if slot in demand.changed[item] or (slot in demand.made[item] and not demand.clean[slot]):
                dirty.add(slot)
            seen[slot] += 1
            following = users[slot]
            if seen[slot] < len(following) or demand.kept[slot]:
                use = following[seen[slot]] if seen[slot] < len(following) else _NEVER
                next_use[slot] = use
                heappush(farthest[place[slot]], (-use, slot))
            else:
                del next_use[slot]
                dirty.discard(slot)
                held[place[slot]] -= size[slot]
    return moved


def _evict(
    demand: Demand,
    where: int,
    most: int,
    held: list[int],
    farthest: list[tuple[int, int]],
    next_use: dict[int, int],
    dirty: set[int],
    away: set[int],
    mine: list[int],
) -> int:
    moved = 0
    spared: list[tuple[int, int]] = []
    while held[where] > most and farthest:
        entry = heappop(farthest)
        slot = entry[1]
        if next_use.get(slot) != -entry[0]:
            continue
        if slot in mine:
            spared.append(entry)
            continue
        del next_use[slot]
        away.add(slot)
        held[where] -= demand.size[slot]
        if slot in dirty:
            dirty.discard(slot)
            moved += demand.size[slot]
    for entry in spared:
        heappush(farthest, entry)
    return moved
