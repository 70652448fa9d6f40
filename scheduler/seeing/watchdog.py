"""The watchdog: says once what a run waits for that makes no progress, and the cycle if there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import trio
from plait.scheduler.explain import kind_word
from plait.scheduler.kinds import COMPUTE, COPY, LOOP
from plait.scheduler.seeing.logs import is_heard, log
from plait.scheduler.seeing.units import format_bytes, format_seconds
from plait.scheduler.seeing.why import Node, causes, why
from plait.scheduler.state import DONE, FAILED, RUNNING, SKIPPED, WAITING, RunState

if TYPE_CHECKING:
    from plait.scheduler.lanes import Dispatcher

_MOST = 5
_LOOKS = 4  # in the time after which a run counts as stuck


async def watch_progress(dispatcher: Dispatcher, state: RunState, stall_after: float, scope: trio.CancelScope) -> None:
    """Until ``scope`` is cancelled: one message each time that nothing has happened for ``stall_after`` seconds."""
    with scope:
        seen, since, told = _marks(dispatcher, state), trio.current_time(), False
        while True:
            await trio.sleep(stall_after / _LOOKS)
            marks, now = _marks(dispatcher, state), trio.current_time()
            if marks != seen:
                seen, since, told = marks, now, False
            elif not told and now - since >= stall_after:
                told = True
                with dispatcher.lock:
                    message = stall_message(dispatcher, state, now - since)
                tell(message)


def tell(message: str) -> None:
    """A warning in the log, or on standard error if nobody listens to the log: it was asked for."""
    log.warning(message)
    if not is_heard():
        print(f"plait: {message}", file=sys.stderr, flush=True)


def _marks(dispatcher: Dispatcher, state: RunState) -> tuple[object, ...]:
    """What changes whenever an item starts, is enqueued or ends."""
    with dispatcher.lock:
        enqueued = 0 if state.flight is None else max(state.flight.number, default=0)
        running = state.status.count(RUNNING)
        return state.cursor, state.settled, running, enqueued, len(state.errors), state.straight, state.prepared


def stall_message(dispatcher: Dispatcher, state: RunState, seconds: float) -> str:
    """What the run waits for: items, streams, events, memory and leases; with the dispatcher's lock held."""
    plan = state.plan
    every = range(len(plan.calls))
    status = [state.status_of(position) for position in every]
    ended = sum(each in (DONE, FAILED, SKIPPED) for each in status)
    lines = [
        f"run of graph {plan.program.graph.name!r} has made no progress for {format_seconds(seconds)}: "
        f"{ended} of {len(status)} items have ended"
        + (f"; it is stopping: {state.stop_reason}" if state.stopping else "")
    ]
    running = [position for position in every if status[position] == RUNNING]
    lines += _few([why(dispatcher, state, position) + _children(dispatcher, (state, position)) for position in running])
    lines += _events(state)
    first: list[int] = []
    if not state.stopping:
        waiting = [position for position in every if status[position] == WAITING]
        first = [each for each in waiting if not any(status[at] in (WAITING, RUNNING) for at in _before(state, each))]
        lines += _few([why(dispatcher, state, position) for position in first])
        if len(waiting) > len(first):
            lines.append(f"{len(waiting) - len(first)} more wait for these")
    lines += _leases(dispatcher)
    cycle = find_cycle(dispatcher, [(state, position) for position in (*running, *first)])
    if cycle:
        named = [_named(node) for node in cycle]
        lines.append(f"these wait for each other: {' -> '.join([*named, named[0]])}")
    return "\n  ".join(lines)


def _few(lines: list[str]) -> list[str]:
    more = [f"… and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return [*lines[:_MOST], *more]


def _before(state: RunState, position: int) -> list[int]:
    offsets, sources = state.plan.waits.predecessors()
    return [int(source) for source in sources[offsets[position] : offsets[position + 1]]]


def _children(dispatcher: Dispatcher, node: Node) -> str:
    names = [repr(state.plan.program.graph.name) for state in dispatcher.runs if state.parent == node]
    return f"; it started the run of graph {', '.join(names)}, which has not ended" if names else ""


def _events(state: RunState) -> Iterator[str]:
    """Per stream of a device, the oldest item whose event has not been reached."""
    if state.flight is None:
        return
    for queue in state.flight.queue.values():
        if queue:
            oldest = queue[0]
            more = f", and {len(queue) - 1} items behind it" if len(queue) > 1 else ""
            yield f"stream {state.plan.stream(oldest)}: the event behind {_name(state, oldest)!r} is not reached{more}"


def _leases(dispatcher: Dispatcher) -> Iterator[str]:
    if dispatcher.memory is None:
        return
    for space in dispatcher.memory.spaces:
        if space.leased:
            yield f"{format_bytes(space.leased)} of memory in {space.name} are leased"
    for claim in dispatcher.memory.turns.claims:
        if claim.owner is None:
            wanted = [f"{format_bytes(n)} in {dispatcher.memory.spaces[at].name}" for at, n in claim.wanted.items()]
            yield f"a lease of {', '.join(wanted)} is waited for"


def find_cycle(dispatcher: Dispatcher, nodes: Iterable[Node]) -> list[Node]:
    """Items that wait for each other in a ring, if a search from ``nodes`` finds one; else empty.

    A graph has no cycle, so one goes through streams, groups, memory, or a run that an item started and waits for.
    """
    done: set[Node] = set()
    for begin in nodes:
        path: list[Node] = []
        stack = [(begin, iter([begin]))]
        on_path: set[Node] = set()
        while stack:
            node = next(stack[-1][1], None)
            if node is None:
                stack.pop()
                if path:
                    on_path.discard(path[-1])
                    done.add(path.pop())
            elif node in on_path:
                return path[path.index(node) :]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                stack.append((node, iter(_waits_for(dispatcher, node))))
    return []


def _waits_for(dispatcher: Dispatcher, node: Node) -> list[Node]:
    state, position = node
    status = state.status_of(position)
    if status == WAITING and not state.stopping:
        return [each for cause in causes(dispatcher, state, position) for each in cause.on]
    if status == RUNNING:
        children = [child for child in dispatcher.runs if child.parent == node]
        return [
            (child, each)
            for child in children
            for each in range(len(child.plan.calls))
            if child.status_of(each) in (WAITING, RUNNING)
        ]
    return []


def _name(state: RunState, position: int) -> str:
    return state.plan.item(position).name


def _named(node: Node) -> str:
    state, position = node
    kind = state.plan.kinds[position]
    where = kind_word(kind) if kind in (COMPUTE, COPY, LOOP) else state.plan.stream(position)
    return f"{_name(state, position)!r} of graph {state.plan.program.graph.name!r} ({where})"
