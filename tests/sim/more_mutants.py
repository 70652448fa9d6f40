"""More broken schedulers: waits, memory, urgency and completions, on the host and on devices. See ``mutants.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from plait.devices.sim import device
from plait.devices.sim.device import Tracker
from plait.graph import Edges
from plait.scheduler import compile, expand
from plait.scheduler.device_lanes import DeviceLanes
from plait.scheduler.device_plan import DevicePart
from plait.scheduler.flight import Flight
from plait.scheduler.lanes import Dispatcher
from plait.scheduler.memory.arbiter import Arbiter
from plait.scheduler.memory.residency import Residency
from plait.scheduler.memory.turns import Turns
from plait.scheduler.state import RunState
from plait.scheduler.virtual_devices import VirtualDeviceLanes
from plait.scheduler.virtual_lanes import VirtualDispatcher


@contextmanager
def one_edge_dropped() -> Iterator[None]:
    """Of each plan a single wait between two streams is forgotten: the last one."""
    make = compile.device_part

    def fewer(items: Any, kinds: list[int], *rest: Any) -> DevicePart:
        part = make(items, kinds, *rest)
        for position in range(len(kinds) - 1, -1, -1):
            for source in part.before[position]:
                if kinds[source] != kinds[position] or part.lanes[source] != part.lanes[position]:
                    part.before[position] = tuple(each for each in part.before[position] if each != source)
                    return part
        return part

    with mock.patch.object(compile, "device_part", fewer):
        yield


@contextmanager
def a_copy_that_does_not_wait() -> Iterator[None]:
    """Copies between places start at once."""
    waits = DeviceLanes.waits_for

    def none(self: Any, state: Any, position: int, tail: Any) -> list[Any]:
        found = waits(self, state, position, tail)
        return [] if state.plan.kinds[position] % 3 else found

    with mock.patch.object(DeviceLanes, "waits_for", none):
        yield


@contextmanager
def a_wait_thought_done() -> Iterator[None]:
    """A stream that has waited for another once is taken to be behind all of it."""
    waits = DeviceLanes.waits_for

    def once(self: Any, state: Any, position: int, tail: Any) -> list[Any]:
        found = waits(self, state, position, tail)
        for stream in tail.seen:
            tail.seen[stream] += 2
        return found

    with mock.patch.object(DeviceLanes, "waits_for", once):
        yield


@contextmanager
def a_local_value_freed_too_early() -> Iterator[None]:
    """What lives in one stream goes when its last user but one is in it."""
    init = Flight.__init__

    def fewer(self: Flight, state: Any, part: DevicePart) -> None:
        init(self, state, part)
        self.local_left = {slot: left - 1 if left > 2 else left for slot, left in part.local.items()}

    with mock.patch.object(Flight, "__init__", fewer):
        yield


@contextmanager
def an_input_taken_for_donated() -> Iterator[None]:
    """The run changes the caller's own arrays."""
    prepare = RunState.prepare

    def greedy(self: RunState) -> BaseException | None:
        self.donated = frozenset(buffer.index for buffer in self.plan.program.inputs.values())
        return prepare(self)

    with mock.patch.object(RunState, "prepare", greedy):
        yield


@contextmanager
def device_urgency_inverted() -> Iterator[None]:
    """An item that is called urgent gets a stream that is not."""
    make = compile.device_part

    def inverted(*args: Any) -> DevicePart:
        part = make(*args)
        return dataclasses.replace(part, priorities=[-each for each in part.priorities])

    with mock.patch.object(compile, "device_part", inverted):
        yield


@contextmanager
def an_engine_that_serves_the_least_urgent() -> Iterator[None]:
    """A device runs the stream of the lowest priority first."""

    def push(heap: list[Any], entry: tuple[int, int, Any]) -> None:
        heap.append((-entry[0], *entry[1:]))
        heap.sort()

    with mock.patch.object(device, "heappush", push):
        yield


@contextmanager
def device_lanes_that_take_the_last() -> Iterator[None]:
    """Of the ready items of a device, the least urgent is enqueued first."""
    serve = VirtualDispatcher._serve_device

    def reversed_(self: Any, lane: Any, state: RunState) -> bool:
        ready = state.ready[lane.kind]
        if len(ready) > 1:
            last = max(ready)
            ready.remove(last)
            ready.insert(0, last)
        busy = serve(self, lane, state)
        ready.sort()
        return busy

    with mock.patch.object(VirtualDispatcher, "_serve_device", reversed_):
        yield


@contextmanager
def runs_served_least_urgent_first() -> Iterator[None]:
    """Of two runs, the less urgent has the lanes first."""
    pick = Dispatcher._pick

    def inverted(self: Dispatcher, kind: int) -> RunState | None:
        found = pick(self, kind)
        able = [state for state in self.runs if state.has_work(kind)]
        return found if found is None or not able else min(able, key=lambda state: (state.priority, state.serial))

    with mock.patch.object(Dispatcher, "_pick", inverted):
        yield


@contextmanager
def a_completion_before_the_end() -> Iterator[None]:
    """The host hears that an item is done when it has been put in its stream."""

    def follow(self: Tracker, stream: int, event: Any, mark: Any) -> None:
        self._device.time.at(self._device.time.now_ns, mark.settle, None)

    with mock.patch.object(Tracker, "follow", follow):
        yield


@contextmanager
def a_completion_posted_twice() -> Iterator[None]:
    """What waits for the item loses two waits for one."""
    end = Flight.end

    def twice(self: Flight, position: int, dead: list[Any]) -> None:
        end(self, position, dead)
        if self.part.late[position] and self.state.status[position] == 2:
            self.state.take_wait(self.part.late[position][:1])

    with mock.patch.object(Flight, "end", twice):
        yield


@contextmanager
def a_host_completion_posted_twice() -> Iterator[None]:
    """An item of the host counts as done twice."""
    settle = RunState.settle

    def twice(self: RunState, position: int, dead: list[Any]) -> None:
        settle(self, position, dead)
        if position % 7 == 3 and self.plan.kinds[position] == 0:
            self.settled += 1

    with mock.patch.object(RunState, "settle", twice):
        yield


@contextmanager
def a_copy_out_told_when_it_begins() -> Iterator[None]:
    """A copy to the host is taken to be done when it starts, and what it brings comes later."""
    push = VirtualDeviceLanes._brought_out

    def early(self: Any, state: Any, position: int, tail: Any, op: Any, made: list[Any]) -> None:
        wanted = state.plan.outs[position]
        push(self, state, position, tail, op, made)
        if made and state.values and state.values[wanted] is made[0]:
            state.values[wanted] = None  # it will be there one moment later
            op.queue.device.time.at(op.queue.device.time.now_ns + 1, state.values.__setitem__, wanted, made[0])

    with mock.patch.object(VirtualDeviceLanes, "_brought_out", early):
        yield


@contextmanager
def an_output_handed_over_early() -> Iterator[None]:
    """An output counts as ready when the first of its writers is done."""
    count_from = RunState.count_from

    def hasty(self: RunState, cursor: int) -> None:
        count_from(self, cursor)
        self.outputs_left = {name: min(left, 1) for name, left in self.outputs_left.items()}

    with mock.patch.object(RunState, "count_from", hasty):
        yield


@contextmanager
def a_copy_of_what_was_there_before() -> Iterator[None]:
    """A transfer takes a replica that has been written elsewhere since."""
    make_valid, nearest = expand._Expander._make_valid, expand._Expander._nearest

    def asking(self: Any, item: Any, place: int, index: int, mode: int, whole: bool) -> None:
        self.asked = index
        make_valid(self, item, place, index, mode, whole)

    def stale(self: Any, valid: int, place: int) -> int:
        for other, slots in enumerate(self.slots):
            if other != place and self.asked in slots and not valid >> other & 1:
                return other
        return nearest(self, valid, place)

    with (
        mock.patch.object(expand._Expander, "_make_valid", asking),
        mock.patch.object(expand._Expander, "_nearest", stale),
    ):
        yield


@contextmanager
def a_grant_ended_too_early() -> Iterator[None]:
    """What an item was promised is free when it begins."""
    pop = RunState.pop

    def early(self: RunState, kind: int) -> int:
        position = pop(self, kind)
        if position >= 0 and self.memory is not None:
            self.memory.ended(position)
        return position

    with mock.patch.object(RunState, "pop", early):
        yield


@contextmanager
def nothing_pinned() -> Iterator[None]:
    """What an item that runs uses may be moved away."""

    def loose(self: Residency, position: int, by: int) -> None:
        pass

    with mock.patch.object(Residency, "pin", loose):
        yield


@contextmanager
def a_claim_that_never_has_its_turn() -> Iterator[None]:
    """Nobody looks at the queue for memory again."""

    def deaf(self: Arbiter) -> None:
        self.changed.clear()
        self.led.clear()

    with mock.patch.object(Arbiter, "settle", deaf):
        yield


@contextmanager
def a_change_lost_when_moved() -> Iterator[None]:
    """What was moved away once counts as being there still, though it has been changed since it came back."""
    grant = Residency.grant

    def forgetful(self: Residency, *args: Any) -> None:
        with mock.patch.object(self.arbiter, "forget_backing", lambda allocation: None):
            grant(self, *args)

    with mock.patch.object(Residency, "grant", forgetful):
        yield


@contextmanager
def a_limit_not_kept() -> Iterator[None]:
    """Whatever asks for memory has it."""

    def anyone(self: Residency, position: int) -> bool:
        return True

    with mock.patch.object(Residency, "admits", anyone):
        yield


@contextmanager
def a_buffer_never_freed() -> Iterator[None]:
    """The last user of a value forgets to let go of it."""
    count_from = RunState.count_from

    def hoarding(self: RunState, cursor: int) -> None:
        count_from(self, cursor)
        self.uses = [uses + 1 if uses > 2 else uses for uses in self.uses]

    with mock.patch.object(RunState, "count_from", hoarding):
        yield


@contextmanager
def an_edge_forgotten() -> Iterator[None]:
    """A fifth of the items let nothing behind them wait."""
    derive = expand.derive

    def forgetful(*args: Any) -> Edges:
        edges = derive(*args)
        return edges.keep(edges.source % 5 != 2)

    with mock.patch.object(expand, "derive", forgetful):
        yield


@contextmanager
def a_completion_lost() -> Iterator[None]:
    """The host is not told of what ends on a device's second stream."""
    follow = Tracker.follow

    def deaf(self: Tracker, stream: int, event: Any, mark: Any) -> None:
        if stream != 1:
            follow(self, stream, event, mark)

    with mock.patch.object(Tracker, "follow", deaf):
        yield


@contextmanager
def a_loop_of_turns() -> Iterator[None]:
    """Whoever waits for memory is asked for ever."""
    take = Turns.take

    def restless(self: Turns, places: Any) -> None:
        take(self, places)
        while self.claims:
            take(self, places)

    with mock.patch.object(Turns, "take", restless):
        yield


MORE: dict[str, Callable[[], Any]] = {
    mutant.__name__: mutant
    for mutant in (
        one_edge_dropped,
        a_copy_that_does_not_wait,
        a_wait_thought_done,
        a_local_value_freed_too_early,
        an_input_taken_for_donated,
        device_urgency_inverted,
        an_engine_that_serves_the_least_urgent,
        device_lanes_that_take_the_last,
        runs_served_least_urgent_first,
        a_completion_before_the_end,
        a_completion_posted_twice,
        a_host_completion_posted_twice,
        a_copy_out_told_when_it_begins,
        an_output_handed_over_early,
        a_copy_of_what_was_there_before,
        a_grant_ended_too_early,
        nothing_pinned,
        a_claim_that_never_has_its_turn,
        a_change_lost_when_moved,
        a_limit_not_kept,
        a_buffer_never_freed,
        an_edge_forgotten,
        a_completion_lost,
        a_loop_of_turns,
    )
}
