"""Orders that use what is in memory before it goes: items that work on the same data together, as many as fit.

Items that change one buffer, or hand results from one to the next, form a chain. Blocks of chains are grown greedily:
next comes the chain that reads least that the block does not read already, and among equals the one after which most
other chains read nothing new. In a block all chains advance together, so what they share is brought in once: for tiled
matrix products these are the blocks of Hong and Kung (STOC 1981), found without knowing what the items compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from plait.scheduler.memory.belady import Demand


def chains(demand: Demand, items: Sequence[int]) -> list[list[int]]:
    """The items by chain, each in the given order, chains in the order of their first items."""
    readers: dict[int, int] = {}
    maker: dict[int, int] = {}
    for item in items:
        for slot in demand.made[item]:
            maker[slot] = item
        for slot in demand.uses[item]:
            if slot not in demand.made[item]:
                readers[slot] = readers.get(slot, 0) + 1
    root = {item: item for item in items}

    def find(item: int) -> int:
        while root[item] != item:
            root[item] = item = root[root[item]]
        return item

    last_change: dict[int, int] = {}
    for item in items:
        for slot in demand.changed[item]:
            before = last_change.setdefault(slot, item)
            root[find(item)] = find(before)
        for slot in demand.uses[item]:
            if slot in maker and maker[slot] != item and readers.get(slot) == 1 and not demand.kept[slot]:
                root[find(item)] = find(maker[slot])
    found: dict[int, list[int]] = {}
    for item in items:
        found.setdefault(find(item), []).append(item)
    return list(found.values())


def block_order(
    demand: Demand, items: Sequence[int], before: Sequence[Sequence[int]], room: float, groups: list[list[int]]
) -> list[int] | None:
    """The items in blocks that work on about ``room`` bytes at once; None if chains wait for each other in a circle.

    ``before[i]`` are the items that item i waits for.
    """
    chain_of = {item: number for number, group in enumerate(groups) for item in group}
    waits = [{chain_of[other] for item in group for other in before[item]} - {k} for k, group in enumerate(groups)]
    size = demand.size
    own: list[set[int]] = []
    reads: list[set[int]] = []
    weight: list[int] = []
    for group in groups:
        mine = {slot for item in group for slot in (*demand.changed[item], *demand.made[item])}
        own.append(mine)
        reads.append({slot for item in group for slot in demand.uses[item] if size[slot]} - mine)
        changed = {slot for item in group for slot in demand.changed[item]}
        passing = max((sum(size[slot] for slot in demand.made[item]) for item in group), default=0)
        weight.append(sum(size[slot] for slot in changed) + passing)
    readers: dict[int, list[int]] = {}
    for number, mine in enumerate(reads):
        for slot in mine:
            readers.setdefault(slot, []).append(number)
    followers: list[list[int]] = [[] for _ in groups]
    for number, others in enumerate(waits):
        for other in others:
            followers[other].append(number)
    left = [len(others) for others in waits]
    open_chains = {number for number in range(len(groups)) if not left[number]}
    step = _steps(demand, groups, readers)
    order: list[int] = []
    taken = [False] * len(groups)
    while open_chains:
        block = _block(groups, own, reads, weight, readers, followers, left, open_chains, taken, size, room)
        order += _advance_together([item for number in block for item in groups[number]], before, step)
    return order if len(order) == len(items) else None


def _block(
    groups: list[list[int]],
    own: list[set[int]],
    reads: list[set[int]],
    weight: list[int],
    readers: dict[int, list[int]],
    followers: list[list[int]],
    left: list[int],
    open_chains: set[int],
    taken: list[bool],
    size: list[int],
    room: float,
) -> list[int]:
    block: list[int] = []
    known: set[int] = set()
    mine: set[int] = set()
    used, length = 0, 1

    def gain(number: int) -> tuple[bool, int, int, int]:
        new = reads[number] - known - mine
        complete = 0
        for other in {each for slot in new for each in readers[slot]}:
            if other != number and not taken[other] and reads[other] - known - mine <= new:
                complete += 1
        cost = sum(size[slot] for slot in new)
        return not cost, complete, -cost, -number

    while open_chains:
        if block:
            near = [
                number for number in open_chains if reads[number] & known or reads[number] & mine or own[number] & known
            ]
            if not near:
                break
            chosen = max(near, key=gain)
        else:
            chosen = min(open_chains)
        all_read = known | reads[chosen]
        longest = max(length, len(groups[chosen]))
        if block and used + weight[chosen] + sum(size[slot] for slot in all_read - mine) / longest > room:
            break
        block.append(chosen)
        taken[chosen] = True
        open_chains.discard(chosen)
        known, mine, used, length = all_read, mine | own[chosen], used + weight[chosen], longest
        for other in followers[chosen]:
            left[other] -= 1
            if not left[other]:
                open_chains.add(other)
    return block


def _steps(demand: Demand, groups: list[list[int]], readers: dict[int, list[int]]) -> dict[int, tuple[int, int]]:
    """Per item, how far its chain has come in reading what others read too, and which chain it is."""
    step: dict[int, tuple[int, int]] = {}
    for number, group in enumerate(groups):
        at = -1
        for item in group:
            at += any(len(readers.get(slot, ())) > 1 for slot in demand.uses[item]) or at < 0
            step[item] = at, number
    return step


def _advance_together(items: list[int], before: Sequence[Sequence[int]], step: dict[int, tuple[int, int]]) -> list[int]:
    inside = set(items)
    left = {item: sum(other in inside for other in before[item]) for item in items}
    behind: dict[int, list[int]] = {}
    for item in items:
        for other in before[item]:
            if other in inside:
                behind.setdefault(other, []).append(item)
    ready = [(*step[item], item) for item in items if not left[item]]
    heapify(ready)
    order = []
    while ready:
        item = heappop(ready)[-1]
        order.append(item)
        for other in behind.get(item, ()):
            left[other] -= 1
            if not left[other]:
                heappush(ready, (*step[other], other))
    return order
