"""Device items of one run between the moment they are enqueued and the moment they are known to be done or failed.

Part of the run's state machine: every method is called with the dispatcher's lock held and none calls a driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from plait.scheduler.device_plan import DevicePart

if TYPE_CHECKING:
    from plait.scheduler.state import RunState

# As in ``state``, which imports this module.
_WAITING, _RUNNING, _DONE = 0, 1, 2


class Flight:
    """Per position: the stream it went into, its number there, and the driver event behind it if others need one."""

    def __init__(self, state: RunState, part: DevicePart) -> None:
        count = len(part.lanes)
        self.state = state
        self.part = part
        self.stream: list[int] = [-1] * count
        self.lane: list[int] = [-1] * count  # index of the stream's name
        self.number: list[int] = [0] * count
        self.event: list[Any] = [None] * count
        self.queue: dict[int, deque[int]] = {}  # stream -> positions in it, not known to be done
        self.held_back: dict[int, list[int]] = {}  # stream -> ready positions that are not next in it, a heap
        self.joined: set[int] = set()  # streams that wait for the caller's own streams already
        self.failing: dict[int, BaseException] = {}  # failed while being enqueued, and some of it may be running
        self.deferred: dict[int, list[int]] = {}  # done by the driver's word, but not before this position is
        self.local_left = dict(part.local)
        self.shared: set[int] = set()  # local slots whose memory may be someone else's too

    def enqueued(self, position: int, event: Any, dead: list[Any]) -> None:
        """All of an item is in its stream: device items behind it may follow, bytes of that stream alone may go."""
        self.event[position] = event
        state = self.state
        state.take_wait(self.part.early[position])
        if state.memory is not None:
            return  # what is counted goes when it is known to be out of use
        for slot in self.part.local_at[position]:
            left = self.local_left[slot] - 1
            self.local_left[slot] = left
            if not left and slot not in self.shared:
                dead.append(state.values[slot])
                state.values[slot] = None

    def enters(self, position: int, stream: int, lane: int, number: int) -> None:
        """An item is about to be enqueued, as the ``number``-th of its device."""
        self.stream[position], self.lane[position], self.number[position] = stream, lane, number
        self.queue.setdefault(stream, deque()).append(position)

    def hold_back(self, position: int, stream: int) -> bool:
        """Keep a ready item aside while its stream has work and something comes before it there by the plan.

        Items become ready to be enqueued long before they can run. Enqueued as they come, one that has long to wait
        would stand in the way of others behind it, which the plan has before it because they need not.
        """
        before, status = self.part.previous[position], self.state.status
        if before < 0 or status[before] != _WAITING or not self.queue.get(stream):
            return False
        if all(status[each] != _RUNNING for each in self.part.before[position]):
            return False  # it waits for nothing, and so stands in nobody's way
        heappush(self.held_back.setdefault(stream, []), position)
        return True

    def release_next(self, stream: int) -> None:
        """Something was enqueued in the stream, or has ended in it: what was kept aside may be next, or is needed."""
        held = self.held_back.get(stream)
        while held and (not self.queue.get(stream) or self.state.status[self.part.previous[held[0]]] != _WAITING):
            self.state.make_ready(heappop(held))
            if not self.queue.get(stream):
                break  # one is enough for the stream to have work

    def release_all(self, stream: int) -> None:
        """The stream is lost, and items find that out when they are enqueued."""
        for position in self.held_back.pop(stream, ()):
            self.state.make_ready(position)

    def reached(self, stream: int, position: int, dead: list[Any]) -> int:
        """All in ``stream`` up to ``position`` has ended; how many items these were."""
        queue = self.queue.get(stream)
        ended = 0
        while queue and self.number[queue[0]] <= self.number[position]:
            self.end(queue.popleft(), dead)
            ended += 1
        return ended

    def end(self, position: int, dead: list[Any]) -> None:
        """One item has ended by the driver's word: it is done, unless what it was made from is not."""
        state, status = self.state, self.state.status
        error = self.failing.pop(position, None)
        if error is None and self.part.guarded[position]:
            before = self.part.before[position]
            unsettled = next((source for source in before if status[source] == _RUNNING), None)
            if unsettled is not None:
                self.deferred.setdefault(unsettled, []).append(position)
                return
            if any(status[source] != _DONE for source in before):
                state.active -= 1
                state.skip(position, dead)
                self._end_deferred(position, dead)
                return
        state.active -= 1
        if error is None:
            state.settle(position, dead)
        else:
            state.fail(position, error, self.lane[position], dead)
        self._end_deferred(position, dead)

    def lost(self, streams: Iterable[int], error: BaseException, dead: list[Any], spared: Sequence[int] = ()) -> None:
        """A device is lost: what was in flight in its streams has failed, the first enqueued first.

        An item that a lane is still enqueueing (``spared``) stays, since its function is running: the lane ends it.
        """
        flying = [position for stream in streams for position in self.queue.pop(stream, ()) if position not in spared]
        for position in spared:
            self.queue[self.stream[position]] = deque([position])
        for position in flying:
            self.failing.setdefault(position, error)
        for position in sorted(flying, key=lambda each: self.number[each]):
            self.end(position, dead)

    def _end_deferred(self, position: int, dead: list[Any]) -> None:
        for other in self.deferred.pop(position, ()):
            self.end(other, dead)
