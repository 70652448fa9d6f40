"""What an item of a run needs of the limited spaces before it may begin: room for what it makes, and what is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.scheduler.device_plan import transfer_call
from plait.scheduler.expand import Transfer
from plait.scheduler.memory.allocation import AWAY, COMING, LEAVING, RESIDENT, Allocation, copied_bytes
from plait.scheduler.memory.spill import Extent

if TYPE_CHECKING:
    from plait.scheduler.memory.residency import Residency

_WAITING = 0
LOOK_BACK = 64  # so many earlier items are looked at for what they will need


def needs(run: Residency, position: int) -> tuple[dict[int, int], list[Allocation], bool]:
    """Bytes that must be found per limited place, what must be brought in for it, and whether sizes are guesses."""
    part, held, place_of = run.part, run.held, run.part.place
    wanted = dict.fromkeys(run.limited_places(position), 0)
    missing: dict[int, Allocation] = {}
    if not wanted:
        return wanted, [], False
    for slot in part.touched[position]:
        allocation = held[slot]
        if allocation is None or allocation.state == RESIDENT or allocation.place not in wanted:
            continue
        if id(allocation) not in missing:
            missing[id(allocation)] = allocation
            if allocation.state in (AWAY, LEAVING):
                wanted[allocation.place] += allocation.nbytes
    guess = False
    for slot in part.made[position]:
        there, place = held[slot], place_of[slot]
        if there is not None and there.place in wanted and there.state in (LEAVING, COMING):
            missing[id(there)] = there  # what is in it is of no use any more, but it is being copied
        if place in wanted:
            nbytes, known = new_bytes(run, position, slot)
            wanted[place] += nbytes
            guess = guess or not known
    return wanted, list(missing.values()), guess


def new_bytes(run: Residency, position: int, slot: int) -> tuple[int, bool]:
    """How many bytes the item will make for ``slot``, and whether that is more than a guess."""
    there, state = run.held[slot], run.state
    if there is not None and there.state == RESIDENT:
        return 0, True  # a transfer into the replica that is there already
    if state.plan.calls[position] is transfer_call:
        item = state.plan.item(position)
        assert isinstance(item, Transfer)
        if item.source is not None:
            source, value = run.held[item.source_slot], state.values[item.source_slot]
            if value is not None:
                return copied_bytes(value), True
            if source is not None:
                view = source.views.get(item.source_slot) if isinstance(source.backing, Extent) else None
                return source.nbytes if view is None else view.nbytes, True
    if run.expected[slot] >= 0:
        return run.expected[slot], True
    call, alike = _call(run, position, slot), run.arbiter.alike
    like = None if call is None else alike.find(*call)
    if like is not None:
        return like, True
    if len(run.part.users[slot]) < 2 and not state.plan.keep[slot]:
        return 0, True  # nobody wants it, as where a function changes an argument and returns nothing
    return max((bytes_of(run, each) for each in run.part.touched[position]), default=0) or alike.largest, False


def bytes_of(run: Residency, slot: int) -> int:
    """Bytes of what is in a slot, or is expected to be."""
    parts = run.parts(slot)
    if parts:
        return sum(part.nbytes for part in parts)
    value = run.state.values[slot]
    return max(0, run.expected[slot]) if value is None else copied_bytes(value)


def learn(run: Residency, position: int, slot: int) -> None:
    """Remember what a call made of arguments of these sizes, for calls like it."""
    call = _call(run, position, slot)
    if call is not None:
        run.arbiter.alike.learn(*call, sum(part.nbytes for part in run.parts(slot)))


def _call(run: Residency, position: int, slot: int) -> tuple[object, tuple[int, ...], int] | None:
    """The function, the sizes of what it uses, and which result it is; None for what makes none."""
    item = run.state.plan.item(position)
    if isinstance(item, Transfer) or item.first_result < 0:
        return None
    given = tuple(bytes_of(run, each) for each in run.part.touched[position])
    return item.function, given, run.part.buffer[slot] - item.first_result


def headroom(run: Residency, position: int, place: int) -> int:
    """What the most demanding of the earlier items that have not begun will need for its results there."""
    most, looked = 0, 0
    at, status, granted, place_of = run.part.at[place], run.state.status, run.granted, run.part.place
    for index in range(run.front_at[place], len(at)):
        other = at[index]
        if other >= position or looked >= LOOK_BACK:
            break
        if status[other] == _WAITING and other not in granted:
            looked += 1
            made = (slot for slot in run.part.made[other] if place_of[slot] == place)
            most = max(most, sum(new_bytes(run, other, slot)[0] for slot in made))
    return most
