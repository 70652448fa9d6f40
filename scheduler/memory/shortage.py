"""The text of an OutOfMemory that the arbiter raises: what was asked for, who holds what, what was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import OutOfMemory
from plait.scheduler.memory.needs import needs
from plait.scheduler.report import format_bytes

if TYPE_CHECKING:
    from plait.scheduler.memory.arbiter import Arbiter
    from plait.scheduler.memory.claim import Claim
    from plait.scheduler.memory.residency import Residency

_MOST = 10


def shortage(arbiter: Arbiter, claim: Claim) -> OutOfMemory:
    """The error for an item for which no room can be made."""
    owner = claim.owner
    assert owner is not None
    wanted, _, guess = needs(owner, claim.position)
    own = working_set(owner, claim.position)
    lines = []
    for place in claim.places:
        space = arbiter.spaces[place]
        asked = f"{wanted[place]} more bytes" + (" (a guess)" if guess else "")
        lines.append(
            f"{space.name}: {asked} needed, limit {space.limit}, in use {space.held}, promised {space.reserved}, "
            f"leased {space.leased}; the item works on {own.get(place, 0)} bytes at once"
        )
        held = sorted(
            (
                (allocation.nbytes, names(residency, allocation.slots), allocation.fixed)
                for residency in arbiter.runs.values()
                for allocation in residency.here[place]
            ),
            reverse=True,
        )
        for nbytes, name, fixed in held[:_MOST]:
            lines.append(f"  {format_bytes(nbytes):>9}  {name}" + (" (cannot be moved)" if fixed else ""))
    lines.append(
        "tried: all that is not in use and can be moved was moved away; raise memory_limit, or use smaller pieces"
    )
    return OutOfMemory("\n".join(lines))


def working_set(owner: Residency, position: int) -> dict[int, int]:
    """Bytes per place that an item needs at once: what it uses and what it makes."""
    part = owner.part
    found: dict[int, int] = {}
    seen: set[int] = set()
    for slot in part.touched[position]:
        for allocation in owner.parts(slot):
            if id(allocation) not in seen:
                seen.add(id(allocation))
                found[allocation.place] = found.get(allocation.place, 0) + allocation.nbytes
    for slot in part.made[position]:
        place = part.place[slot]
        found[place] = found.get(place, 0) + max(0, owner.expected[slot])
    return found


def names(residency: Residency, slots: set[int]) -> str:
    """The buffers of some slots, with their graph."""
    program = residency.state.plan.program
    literals = {index: number for number, index in enumerate(residency.state.plan.expansion.literals.values())}
    found = []
    for slot in sorted(slots):
        buffer = residency.part.buffer[slot]
        plain = buffer in literals
        found.append(f"plain argument {literals[buffer]}" if plain else repr(program.graph.buffer_at(buffer).name))
    return f"{', '.join(found[:3])}{' …' if len(found) > 3 else ''} of graph {program.graph.name!r}"
