"""The state machine of one run on the host: what is ready, running, done, failed, and whose bytes may go.

A run of tiny items begins *straight*: its items run one after the other in plan order and nothing is counted. As
soon as an item turns out to be long it becomes *counted*: ready heaps, pending counts, any number of streams.
Every method is called with the dispatcher's lock held, and none of them waits or calls user code.
"""

from __future__ import annotations

import contextvars
import copy
from array import array
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.devices import fetch
from plait.graph import BUFFER, INPUT
from plait.scheduler.bind import Values
from plait.scheduler.containers import leaves
from plait.scheduler.flight import Flight
from plait.scheduler.kinds import COMPUTE, COPY, LOOP
from plait.scheduler.seeing.failed_inputs import describe_inputs
from plait.scheduler.seeing.nesting import parent_item

if TYPE_CHECKING:
    from plait.scheduler.memory import Arbiter, Residency
    from plait.scheduler.plan import Plan

WAITING, RUNNING, DONE, FAILED, SKIPPED = 0, 1, 2, 3, 4
MOST_DEMOTIONS = 4
FIRST = 2.0**62  # nanoseconds: more than any lane time or clock
MOST_WAITING = 16  # ready items of one kind that wait for memory, before others are asked
STATUS_WORDS = ("waiting", "running", "done", "failed", "skipped")


class RunState:
    """One run of a plan: the value table, and per position its status and how many waits it has left."""

    def __init__(
        self,
        plan: Plan,
        inputs: dict[str, Any],
        *,
        priority: int = 0,
        isolate: bool = False,
        traced: bool = False,
        synchronous: bool = False,
        grain_ns: int = 0,
        donated: frozenset[int] = frozenset(),
        arbiter: Arbiter | None = None,
        sizes: array[int] | None = None,
    ) -> None:
        count = len(plan.calls)
        self.plan = plan
        self.priority = priority
        self.donated = donated  # slots of inputs that are the run's to change
        self.isolate = isolate
        self.traced = traced
        self.synchronous = synchronous
        self.grain_ns = grain_ns
        self.values = _bound(plan, inputs)
        self.values[-2] = self
        self.fetched = [index for index in plan.touched_on_host if _is_on_device(self.values[index])]
        self.prepared = not plan.host_made and not plan.program.mutated and not self.fetched
        self.preparing = False
        self.context = contextvars.copy_context()
        self.parent = parent_item()  # of another run, whose function started this one
        self.straight = plan.straight and grain_ns < 20_000 and arbiter is None
        self.owned = False
        self.cursor = self.promoted_at = 0
        self.demotions = 0
        self.attention = False
        self.stopping = False
        self.active = 0
        self.settled = 0
        self.status = bytearray(0 if self.straight else count)
        self.pending: list[int] = []
        self.uses: list[int] = []
        kinds = 3 if plan.on_device is None else 3 * len(plan.places)
        self.lane_kinds = (COMPUTE, COPY, *range(3, kinds))
        self.ready: list[list[int]] = [[] for _ in range(kinds)]
        self.fresh: list[int] | None = None  # kinds that something became ready of, if someone wants to know
        self.flight = None if plan.on_device is None else Flight(self, plan.on_device)
        self.failed_at = -1
        self.errors: list[tuple[int, BaseException, int]] = []
        self.failed_inputs: dict[int, tuple[str, ...]] = {}
        self.joins: list[Any] = []  # driver events of the caller's own streams, which device work starts behind
        self.stop_reason: str | None = None
        self.outputs_left = {name: len(writers) for name, writers in plan.output_positions.items()}
        self.outputs_done: list[str] = []
        self.group_use = dict.fromkeys(plan.program.group_limits, 0)
        self.group_wait: dict[str, list[int]] = {}
        self.simulated_cores = 0  # of a simulated host, whose traces hold nothing of this computer
        self.serial = 0  # of all runs of its scheduler, in the order in which they were started
        self.vtime = 0.0
        self.deadline_ns: int | None = None  # after the run's begin
        self.queued = [False] * kinds
        self.mailed = False
        self.begin_ns = self.end_ns = 0
        self.started = array("q", bytes(8 * count if traced else 0))
        self.finished = array("q", bytes(8 * count if traced else 0))
        self.stamps_straight: list[tuple[int, int, list[int]]] = []  # first position, lane, starts and the last end
        self.lanes = array("H", bytes(2 * count if traced else 0))
        self.sizes: list[int] = [0] * len(self.values) if traced else []
        on_device = traced and plan.on_device is not None
        self.enqueued = array("q", bytes(8 * count if on_device else 0))  # when the host had enqueued a device item
        self.stamps: dict[int, tuple[Any, Any]] = {}  # device items: timed driver events before and behind
        self.stalls: list[tuple[int, int, int]] = []  # (start, end) in ns while an item waited for so many bytes
        self.memory = None if arbiter is None else arbiter.open(self, sizes)
        if not self.straight:
            self.count_from(0)
        if self.prepared:
            self.pass_unwritten_outputs()

    # ---- straight ---------------------------------------------------------------------------------------------

    def promote(self) -> None:
        """Go from straight to counted. The item under the cursor stays its owner's, who settles it or hands it back."""
        self.straight = False
        self.attention = True  # before the cursor is read: see run_straight
        count = len(self.plan.calls)
        cursor = self.promoted_at = self.cursor
        self.status = bytearray(count)
        self.status[:cursor] = bytes([DONE]) * cursor
        self.settled = cursor
        for end in self.plan.output_ends:
            if end > cursor:
                break
            self.pass_outputs(end)
        self.count_from(cursor)
        if self.owned and cursor < count:
            self.status[cursor] = RUNNING
            self.ready[COMPUTE].remove(cursor)
            heapify(self.ready[COMPUTE])

    def resume(self, position: int, dead: list[Any]) -> None:
        """After ``promote``, the owner left its loop before running ``position``: settle what it ran since."""
        for ran in range(self.promoted_at, position):
            self.settle(ran, dead)
        if position == self.promoted_at < len(self.plan.calls):
            self.status[position] = WAITING
            heappush(self.ready[COMPUTE], position)

    def demote(self) -> bool:
        """Go back to straight if the items turned out tiny and what is done is the beginning of the plan's order.

        One lane alone takes ready items in that order, so this soon holds again. Counting anew costs a pass over the
        plan, so a run goes back a few times at most.
        """
        ready = self.ready[COMPUTE]
        if not self.plan.straight or self.active or self.errors or self.stopping or self.demotions >= MOST_DEMOTIONS:
            return False
        if not ready or ready[0] != self.settled:
            return False
        self.demotions += 1
        self.straight = True
        self.cursor = self.settled
        self.status = bytearray()
        self.pending, self.uses = [], []
        ready.clear()
        return True

    def pass_unwritten_outputs(self) -> None:
        """Once the run's buffers are there: the outputs that no item writes are ready."""
        self.outputs_done += [name for name, left in self.outputs_left.items() if not left]

    def pass_outputs(self, cursor: int) -> None:
        """Note the outputs whose last writer stands just before ``cursor``, where a straight run has come to."""
        for name in self.plan.outputs_ending.get(cursor, ()):
            if self.outputs_left[name]:
                self.outputs_left[name] = 0
                self.outputs_done.append(name)

    def count_from(self, cursor: int) -> None:
        """Count waits and uses of the items at ``cursor`` and after; what waits for nothing becomes ready."""
        plan = self.plan
        count = len(plan.calls)
        waits = plan.waits
        left = waits.target[waits.source >= cursor]
        pending = np.bincount(left, minlength=count)[:count]
        self.pending = pending.tolist()
        offsets, touched = plan.accesses
        slots = touched[offsets[cursor] :]
        self.uses = (np.bincount(slots, minlength=len(plan.keep)) + plan.keep).tolist()
        kinds = plan.kinds
        for position in (np.flatnonzero(pending[cursor:] == 0) + cursor).tolist():
            self.ready[kinds[position]].append(position)
        for name in [name for name, left in self.outputs_left.items() if left]:
            self.outputs_left[name] = sum(writer >= cursor for writer in plan.output_positions[name])

    # ---- counted ----------------------------------------------------------------------------------------------

    def pop(self, kind: int) -> int:
        """Take what ``peek`` finds; -1 if there is none."""
        position = self.peek(kind) if self.memory is None else self._peek_in_memory(kind, self.memory)
        if position >= 0:
            heappop(self.ready[kind])
            for name in self.plan.groups.get(position, ()):
                self.group_use[name] += 1
            self.status[position] = RUNNING
            self.active += 1
        return position

    def peek(self, kind: int) -> int:
        """The most urgent ready item of ``kind`` whose groups have room; -1 if there is none.

        What has been skipped since it became ready is passed over: a device item is ready once those before it are
        enqueued, and they may fail afterwards.
        """
        if self.memory is not None:
            return self._peek_in_memory(kind, self.memory)
        return self._peek(kind)

    def _peek_in_memory(self, kind: int, memory: Residency) -> int:
        """As ``peek``, among those for which there is memory: the others wait aside."""
        ready, granted = self.ready[kind], memory.granted
        while self._may_look(kind) and (position := self._peek(kind)) >= 0:
            if position in granted:
                return position
            admitted = memory.admits(position)
            if not ready or ready[0] != position:
                continue  # it has failed, for there will never be room, or one before it has been let in
            if admitted:
                return position
            memory.wait(heappop(ready))
        return -1

    def _may_look(self, kind: int) -> bool:
        """Whether it pays to ask for memory for another item: many wait already, and this is not before them."""
        assert self.memory is not None
        ready, waiting = self.ready[kind], self.memory.waiting[kind]
        return bool(ready) and (len(waiting) < MOST_WAITING or ready[0] < min(waiting))

    def _peek(self, kind: int) -> int:
        ready = self.ready[kind]
        while ready and not self.stopping:
            position = ready[0]
            full = self.full_group(position) if position in self.plan.groups else None
            if self.status[position] == WAITING and full is None:
                return position
            heappop(ready)
            if full is not None:
                heappush(self.group_wait.setdefault(full, []), position)
        return -1

    def full_group(self, position: int) -> str | None:
        """The first of the item's groups that has no room."""
        limits = self.plan.program.group_limits
        return next((name for name in self.plan.groups[position] if self.group_use[name] >= (limits[name] or 0)), None)

    def _leave(self, position: int) -> None:
        for name in self.plan.groups[position]:
            self.group_use[name] -= 1
            waiting = self.group_wait.get(name)
            if waiting:
                self.make_ready(heappop(waiting))

    def ended(self, position: int, error: BaseException | None, lane: int, dead: list[Any]) -> None:
        """An item of the host has been called: it is done, or has failed on a lane (-1: the trio loop)."""
        self.active -= 1
        if error is not None:
            self.fail(position, error, lane, dead)
            return
        if self.memory is not None:
            self.memory.produced(position)
        self.settle(position, dead)

    def settle(self, position: int, dead: list[Any]) -> None:
        """An item is done: its successors lose a wait; values that nobody needs any more move to ``dead``."""
        plan = self.plan
        self.status[position] = DONE
        self.settled += 1
        if plan.on_device is None:
            self.take_wait(plan.successors[position])
        else:
            self.take_wait(plan.on_device.late[position])
        self.release(position, dead)
        if plan.groups and position in plan.groups:
            self._leave(position)
        for name in plan.outputs_at.get(position, ()):
            left = self.outputs_left[name] - 1
            self.outputs_left[name] = left
            if not left:
                self.outputs_done.append(name)

    def take_wait(self, successors: Sequence[int]) -> None:
        """Items lose a wait; who has none left is ready."""
        pending, status = self.pending, self.status
        for successor in successors:
            left = pending[successor] - 1
            pending[successor] = left
            if not left and status[successor] == WAITING:
                self.make_ready(successor)

    def make_ready(self, position: int) -> None:
        """An item may start."""
        kind = self.plan.kinds[position]
        heappush(self.ready[kind], position)
        if self.fresh is not None:
            self.fresh.append(kind)

    def look_at(self, kind: int) -> None:
        """A lane of that kind has something to do other than an item."""
        if self.fresh is not None:
            self.fresh.append(kind)

    def release(self, position: int, dead: list[Any]) -> None:
        """Give up the item's uses of its slots."""
        plan = self.plan
        uses, values, memory = self.uses, self.values, self.memory
        for slot in plan.touched[position]:
            left = uses[slot] - 1
            uses[slot] = left
            if not left:
                dead.append(values[slot])
                values[slot] = None
                if memory is not None:
                    memory.detach(slot)
        if memory is not None:
            memory.ended(position)

    def fail(self, position: int, error: BaseException, lane: int, dead: list[Any]) -> None:
        """An item failed: stop the run, or skip what any path joins to it."""
        self.errors.append((position, error, lane))
        self.failed_inputs[position] = describe_inputs(self.plan, position, self.values)
        if self.straight:
            self.failed_at = position
            if not self.isolate:
                self.stop("an item failed")
                return
            self.owned = False
            self.promote()
            self.ready[COMPUTE].remove(position)
            heapify(self.ready[COMPUTE])
        self.status[position] = FAILED
        self.settled += 1
        self.release(position, dead)
        if self.plan.groups and position in self.plan.groups:
            self._leave(position)
        if not self.isolate:
            self.stop("an item failed")
            return
        self.skip_behind(position, dead)

    def skip(self, position: int, dead: list[Any]) -> None:
        """What an item was made from turned out to have failed: it counts for nothing, and nothing runs behind it."""
        self.status[position] = SKIPPED
        self.settled += 1
        self.release(position, dead)
        if self.plan.groups and position in self.plan.groups:
            self._leave(position)
        self.skip_behind(position, dead)

    def skip_behind(self, position: int, dead: list[Any]) -> None:
        """Skip what waits, by any path, for an item that will not be done."""
        successors = self.plan.successors
        stack = [position]
        while stack:
            current = stack.pop()
            for successor in successors[current]:
                if self.status[successor] == WAITING:
                    self.status[successor] = SKIPPED
                    self.settled += 1
                    self.release(successor, dead)
                    stack.append(successor)

    def stop(self, reason: str) -> None:
        """Start nothing more; what is in flight drains."""
        self.stopping = True
        self.attention = True
        self.stop_reason = self.stop_reason or reason
        if self.memory is not None:
            self.memory.stopped()

    @property
    def over(self) -> bool:
        """Whether nothing is in flight and nothing will start any more."""
        if not self.prepared and not self.stopping:
            return False  # its buffers are not there yet, and an output may be one of them
        if self.straight:
            return not self.owned and not self.preparing and (self.stopping or self.cursor >= len(self.plan.calls))
        return (
            not self.active
            and not self.owned
            and not self.preparing
            and (self.stopping or self.settled >= len(self.plan.calls))
        )

    def has_work(self, kind: int) -> bool:
        """Whether a stream of ``kind`` could start something now."""
        if self.stopping or self.preparing:
            return False
        if not self.prepared:
            return kind == COMPUTE
        if self.straight:
            return kind == COMPUTE and not self.owned and self.cursor < len(self.plan.calls)
        if self.memory is not None:
            return bool(self.memory.moves[kind]) or self._may_look(kind)
        return kind < len(self.ready) and bool(self.ready[kind])

    def turn(self, kind: int) -> float:
        """What runs of one priority are served by, smallest first: a run with a deadline by the latest moment at which
        its next item may start, ahead of those without, which share by the lane time they have had."""
        if self.deadline_ns is None:
            return self.vtime
        if self.straight:
            position = min(self.cursor, len(self.plan.calls) - 1)
        else:
            position = self.ready[kind][0] if self.ready[kind] else -1
        rest = self.plan.rest[position] if position >= 0 else 0.0
        return self.begin_ns + self.deadline_ns - rest * 1e9 - FIRST

    @property
    def has_news(self) -> bool:
        """Whether the trio thread has something to do for the run."""
        if self.stopping or self.outputs_done:
            return True
        return bool(self.ready[LOOP]) and self.prepared and (self.memory is None or self._may_look(LOOP))

    def status_of(self, position: int) -> int:
        """The status of one position, straight or counted."""
        if self.status:
            return self.status[position]
        if position == self.failed_at:
            return FAILED
        if position < self.cursor:
            return DONE
        if self.stopping and not self.owned:
            return SKIPPED
        return RUNNING if position == self.cursor and self.owned else WAITING

    def measure_slot(self, slot: int) -> None:
        """Note the bytes of one value."""
        self.sizes[slot] = getattr(self.values[slot], "nbytes", 0)

    def prepare(self) -> BaseException | None:
        """Allocate the run's own buffers, and copy the inputs and constants that it writes. Called without the lock."""
        values = self.values
        mutated = self.plan.program.mutated
        try:
            for index in self.fetched:
                values[index] = fetch(values[index], self.joins)
            for buffer in self.plan.program.declared:
                if buffer.kind == BUFFER and buffer.index not in self.plan.host_made:
                    continue
                if self.memory is not None and self.memory.held[buffer.index] is not None:
                    continue  # made when first used
                if buffer.kind == BUFFER:
                    values[buffer.index] = array = _allocated(buffer)
                    if self.traced:
                        self.sizes[buffer.index] = array.nbytes
                elif buffer.index in mutated and buffer.index not in self.fetched and buffer.index not in self.donated:
                    values[buffer.index] = _copied(values[buffer.index])
        except Exception as error:  # a MemoryError, or whatever an input's own copy raises
            return error
        return None


def _allocated(buffer: Any) -> np.ndarray[Any, Any]:
    if buffer.value is None:
        return np.empty(buffer.shape, buffer.dtype)
    if np.isscalar(buffer.value) and buffer.value == 0:
        return np.zeros(buffer.shape, buffer.dtype)
    return np.full(buffer.shape, buffer.value, buffer.dtype)


def _is_on_device(value: Any) -> bool:
    """Whether a value is a device array or a container that holds one."""
    return any(hasattr(part, "__cuda_array_interface__") for part in leaves(value))


def _copied(value: Any) -> Any:
    if _is_on_device(value):
        return value  # only devices use it, and a transfer makes the copy
    return value.copy() if isinstance(value, np.ndarray) else copy.deepcopy(value)


def _bound(plan: Plan, inputs: dict[str, Any]) -> Values:
    values = plan.template.copy()
    for name, buffer in plan.program.inputs.items():
        if buffer.kind == INPUT:
            values[buffer.index] = inputs[name]
    return values
