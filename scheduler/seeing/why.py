"""Why an item has not started, or what became of it: as words for ``run.why``, as a graph of waits for the watchdog.

Every function is called on the trio thread with the dispatcher's lock held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from plait.scheduler.explain import kind_word
from plait.scheduler.kinds import COMPUTE, LOOP
from plait.scheduler.memory.needs import needs
from plait.scheduler.seeing.nesting import lane_position
from plait.scheduler.seeing.units import format_bytes, format_seconds
from plait.scheduler.state import FAILED, RUNNING, SKIPPED, STATUS_WORDS, WAITING, RunState
from plait.scheduler.tail import WINDOW

if TYPE_CHECKING:
    from plait.scheduler.lanes import Dispatcher, Lane

_MOST = 5
Node = tuple[RunState, int]  # an item of a run


@dataclass(frozen=True)
class Cause:
    """One thing that an item waits for, in words that go on after its name, and the items that hold it."""

    text: str
    on: tuple[Node, ...] = ()


def why(dispatcher: Dispatcher, state: RunState, position: int) -> str:
    """A sentence about one item."""
    name, status = state.plan.item(position).name, state.status_of(position)
    if status == RUNNING:
        return f"{name!r} is running{_running(dispatcher, state, position)}"
    if status == SKIPPED:
        return f"{name!r} is skipped{_skipped(state, position)}"
    if status != WAITING:
        return f"{name!r} is {STATUS_WORDS[status]}{_ended(state, position)}"
    if state.stopping:
        return f"{name!r} will not run: {state.stop_reason}"
    return f"{name!r} {' and '.join(cause.text for cause in causes(dispatcher, state, position))}"


def causes(dispatcher: Dispatcher, state: RunState, position: int) -> list[Cause]:
    """What an item that has not started waits for."""
    before = [each for each in _before(state, position) if state.status_of(each) in (WAITING, RUNNING)]
    if before:
        words = [f"{state.plan.item(each).name!r} ({STATUS_WORDS[state.status_of(each)]})" for each in before]
        return [Cause(f"waits for {_listed(words)}", tuple((state, each) for each in before))]
    if not state.begin_ns:
        return [Cause("is ready and waits for its run to begin")]
    if not state.prepared:
        return [Cause("is ready and waits for the run's buffers to be allocated")]
    found = [_group(state, position), _memory(dispatcher, state, position), _stream(dispatcher, state, position)]
    return [next(cause for cause in found if cause is not None)]


def _before(state: RunState, position: int) -> list[int]:
    """What must have ended (or, of device items, been enqueued) before the item may start."""
    offsets, sources = state.plan.waits.predecessors()
    before = [int(source) for source in sources[offsets[position] : offsets[position + 1]]]
    part = state.plan.on_device
    if part is None:
        return before
    early = set(part.before[position])
    return [each for each in before if each not in early or state.status_of(each) != RUNNING]


def _group(state: RunState, position: int) -> Cause | None:
    full = state.full_group(position) if position in state.plan.groups else None
    if full is None:
        return None
    holders = [each for each, names in state.plan.groups.items() if full in names and state.status_of(each) == RUNNING]
    words = [repr(state.plan.item(each).name) for each in holders]
    taken = f", taken by {_listed(words)}" if words else ""
    return Cause(f"is ready and waits for room in group {full!r}{taken}", tuple((state, each) for each in holders))


def _memory(dispatcher: Dispatcher, state: RunState, position: int) -> Cause | None:
    memory, arbiter = state.memory, dispatcher.memory
    if memory is None or arbiter is None or position not in memory.waiting[state.plan.kinds[position]]:
        return None
    wanted = needs(memory, position)[0]
    words = [f"{format_bytes(nbytes)} of memory in {arbiter.spaces[place].name}" for place, nbytes in wanted.items()]
    leased = [
        f"{format_bytes(arbiter.spaces[place].leased)} leased" for place in wanted if arbiter.spaces[place].leased
    ]
    holders = tuple(
        (residency.state, each) for residency in arbiter.runs.values() for each in _running_items(residency.state)
    )
    return Cause(f"is ready and waits for {_listed(words)}{' (' + _listed(leased) + ')' if leased else ''}", holders)


def _running_items(state: RunState) -> list[int]:
    return [each for each, status in enumerate(state.status) if status == RUNNING]


def _stream(dispatcher: Dispatcher, state: RunState, position: int) -> Cause:
    """Ready, and its stream or any of the kind that it needs is taken."""
    kind = state.plan.kinds[position]
    if kind == LOOP:
        return Cause("is ready and waits for the trio loop, which some task does not let go")
    if kind > LOOP:
        flight, stream = state.flight, state.plan.stream(position)
        assert flight is not None, "a device item in a plan without devices"
        behind = [
            (state, each) for queue in flight.queue.values() for each in queue if state.plan.stream(each) == stream
        ]
        words = _listed([repr(state.plan.item(each).name) for _, each in behind])
        full = f", which takes {WINDOW} at once," if len(behind) >= WINDOW else ""
        return Cause(
            f"is ready and waits to be enqueued in {stream}{full}{f' behind {words}' if words else ''}", tuple(behind)
        )
    word, busy = kind_word(kind), list(working(dispatcher, kind))
    ahead = sum(each < position for each in state.ready[kind])
    if not state.straight:
        text = f"is ready and waits for a free {word} stream"
    else:
        ahead, text = position - state.cursor - 1, f"is ready and waits for its turn on one {word} stream"
    behind_text = f" behind {_listed([_named(at, state) for _, at in busy])}" if busy else ""
    more = f"; {ahead} ready items are more urgent" if ahead > 0 else ""
    others = [each for each in dispatcher.runs if each is not state and each.priority > state.priority]
    if others:
        more += (
            f"; runs of higher priority come first: {_listed([repr(each.plan.program.graph.name) for each in others])}"
        )
    return Cause(text + behind_text + more, tuple(at for _, at in busy))


def working(dispatcher: Dispatcher, kind: int = COMPUTE) -> Iterator[tuple[Lane, Node]]:
    """The host streams of a kind that are in an item, and which."""
    for lane in dispatcher.lanes:
        if lane.kind == kind and lane.state is not None:
            state = lane.state
            position = lane_position(lane, state)
            if position < len(state.plan.calls):
                yield lane, (state, position)


def still_running(dispatcher: Dispatcher, state: RunState) -> list[str]:
    """The items of a run that is stopping which are in flight, where they were recorded, and since when they run."""
    with dispatcher.lock:
        plan = state.plan
        positions = [each for each in range(len(plan.calls)) if state.status_of(each) == RUNNING]
        running = [(plan.item(each), _running(dispatcher, state, each)) for each in positions]
    return [f"{item.name!r} ({item.site}){where.replace(' on', ', which runs on', 1)}" for item, where in running]


def _named(node: Node, own: RunState) -> str:
    state, position = node
    name = repr(state.plan.item(position).name)
    return name if state is own else f"{name} of graph {state.plan.program.graph.name!r}"


def _running(dispatcher: Dispatcher, state: RunState, position: int) -> str:
    """Where it runs and since when, as far as that is known."""
    kind = state.plan.kinds[position]
    if kind == LOOP:
        return " on the trio loop"
    if kind > LOOP:
        flight = state.flight
        assert flight is not None, "a device item in a plan without devices"
        ahead = [each for queue in flight.queue.values() if position in queue for each in queue if each < position]
        ahead = [each for each in ahead if flight.stream[each] == flight.stream[position]]
        words = [repr(state.plan.item(each).name) for each in ahead]
        return f": enqueued in {state.plan.stream(position)}{f' behind {_listed(words)}' if words else ''}"
    for lane, node in working(dispatcher, kind):
        if node == (state, position):
            since = lane.since_ns if lane.position >= 0 else _straight_since(state, position)
            return f" on {lane.stream.name}" + (
                f" since {format_seconds((perf_counter_ns() - since) / 1e9)}" if since else ""
            )
    return ""


def _straight_since(state: RunState, position: int) -> int:
    if not state.stamps_straight:
        return 0
    first, _, stamps = state.stamps_straight[-1]
    return stamps[position - first] if 0 <= position - first < len(stamps) else 0


def _skipped(state: RunState, position: int) -> str:
    """Because of which failure, if one is behind it."""
    failed = [each for each in sorted(_ancestors(state, position)) if state.status_of(each) == FAILED]
    if failed:
        return f": {state.plan.item(failed[0]).name!r} failed, which it depends on"
    return f": {state.stop_reason}" if state.stop_reason else ""


def _ancestors(state: RunState, position: int) -> set[int]:
    offsets, sources = state.plan.waits.predecessors()
    found: set[int] = set()
    stack = [position]
    while stack:
        at = stack.pop()
        for source in sources[offsets[at] : offsets[at + 1]].tolist():
            if source not in found:
                found.add(source)
                stack.append(source)
    return found


def _ended(state: RunState, position: int) -> str:
    """How long it took, if the run was traced and not straight."""
    if not state.traced or not state.finished[position]:
        return ""
    began, ended = state.started[position], state.finished[position]
    into = format_seconds((began - state.begin_ns) / 1e9)
    return f" after {format_seconds((ended - began) / 1e9)}, begun {into} into the run"


def _listed(words: Iterable[str]) -> str:
    """The first few, with commas."""
    every = list(words)
    more = f" and {len(every) - _MOST} more" if len(every) > _MOST else ""
    return f"{', '.join(every[:_MOST])}{more}"
