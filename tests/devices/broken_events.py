"""Hosts with broken events: states, callbacks, recording again, times, awaiting."""

from __future__ import annotations

from broken_base import caught_by
from plait.devices.host.event import HostEvent
from plait.devices.host.stream import HostStream
from plait.devices.mark import Mark
from plait.devices.protocol import EventStatus
from plait.devices.waiting import wait_mark


class _Event(HostEvent):
    __slots__ = ()


@caught_by("test_an_event_is_pending_then_done", "event")
class SaysDone(_Event):
    __slots__ = ()
    done = property(lambda self: True)


@caught_by("test_an_event_is_pending_then_done", "stream")
class SettlesAtOnce(HostStream):
    def record(self, event=None, *, timing=True):
        event = super().record(event, timing=timing)
        event.snapshot().settle()
        return event


@caught_by("test_never_recorded_counts_as_done", "event")
class PendsUnrecorded(_Event):
    __slots__ = ()
    status = property(lambda self: EventStatus.PENDING if self._mark is None else self._mark.status)


@caught_by("test_events_of_a_failed_stream_fail", "event")
class FailedReadsAsPending(_Event):
    __slots__ = ()
    status = property(lambda self: EventStatus.DONE if self._mark and self._mark.settled and not self._mark.error else EventStatus.PENDING)  # fmt: skip  # noqa: E501


@caught_by("test_events_of_a_failed_stream_fail", "event")
class FailedReadsAsDone(_Event):
    __slots__ = ()
    done = property(lambda self: self._mark is None or self._mark.settled)


@caught_by("test_events_of_a_failed_stream_fail", "event")
class TellsFailureTwice(_Event):
    __slots__ = ()

    def add_callback(self, callback):
        super().add_callback(callback)
        super().add_callback(lambda: self.error and callback())


@caught_by("test_events_of_a_failed_stream_fail", "event")
class WrapsErrors(_Event):
    __slots__ = ()
    error = property(lambda self: super().error and RuntimeError("failed"))


@caught_by("test_a_late_callback_runs_at_once", "event")
class LosesLateCallbacks(_Event):
    __slots__ = ()

    def add_callback(self, callback):
        mark = self.snapshot()
        if mark is None or not mark.settled or getattr(callback, "__name__", "") == "set":
            super().add_callback(callback)


@caught_by("test_every_callback_is_called_once", "event")
class CallsBackOncePerCallable(_Event):
    __slots__ = ()

    def add_callback(self, callback):
        self.snapshot().subscribe(callback, callback)


@caught_by("test_recording_again_moves_the_event", "event")
class StaysWhereItWas(_Event):
    __slots__ = ()

    def move(self, mark):
        if self._mark is None:
            super().move(mark)


class _Live(HostEvent):
    """All that waited, whenever they did, wait for what is recorded now."""

    __slots__ = ("current", "handed")

    def snapshot(self):
        if self._mark is None:
            return None
        self.__class__.handed.__set__(self, getattr(self, "handed", []))
        mark = Mark()
        self.handed.append(mark)
        self.follow(self._mark, [mark])
        return mark

    def move(self, mark):
        super().move(mark)
        self.follow(mark, list(getattr(self, "handed", [])))

    def follow(self, followed, marks):
        def pass_on():
            if self._mark is followed or self.released_early:
                for mark in marks:
                    mark.settle(followed.error)

        followed.subscribe(pass_on)

    def __await__(self):
        return wait_mark(self.snapshot()).__await__()


@caught_by("test_recording_again_disturbs_no_wait_of_a_stream", "event")
class ReleasesEarly(_Live):
    __slots__ = ()
    released_early = True


@caught_by("test_recording_again_disturbs_no_await", "event")
class HoldsLonger(_Live):
    __slots__ = ()
    released_early = False


@caught_by("test_elapsed_is_the_time_between", "event")
class RunsBackwards(_Event):
    __slots__ = ()

    def elapsed(self, earlier):
        return -super().elapsed(earlier)


@caught_by("test_elapsed_is_the_time_between", "event")
class CountsMilliseconds(_Event):
    __slots__ = ()

    def elapsed(self, earlier):
        return super().elapsed(earlier) * 1e3


@caught_by("test_elapsed_without_both_times_is_refused", "event")
class GuessesTimes(_Event):
    __slots__ = ()

    def elapsed(self, earlier):
        return ((self.time_ns or 0) - (earlier.time_ns or 0)) / 1e9


@caught_by("test_await_is_a_checkpoint_and_raises_what_failed", "event")
class AwaitsWithoutCheckpoint(_Event):
    __slots__ = ()

    def __await__(self):
        if not self.done:
            yield from super().__await__()


@caught_by("test_await_is_a_checkpoint_and_raises_what_failed", "event")
class AwaitsQuietly(_Event):
    __slots__ = ()

    def __await__(self):
        try:
            yield from super().__await__()
        except Exception:
            return


@caught_by("test_cancelling_an_await_leaves_the_stream_alone", "event")
class CancelsTheDevice(_Event):
    __slots__ = ()

    def snapshot(self):
        mark = Mark()
        self._mark.subscribe(lambda: mark.settle(self._mark.error))
        unsubscribe = mark.unsubscribe
        mark.__class__ = _Fragile
        mark.given_up = self._mark
        assert unsubscribe
        return mark


class _Fragile(Mark):
    __slots__ = ()
    victims: dict[int, Mark] = {}  # noqa: RUF012
    given_up = property(lambda self: self.victims[id(self)], lambda self, mark: self.victims.update({id(self): mark}))

    def unsubscribe(self, key):
        super().unsubscribe(key)
        self.given_up.settle(RuntimeError("cancelled"))
