"""The host platform with one thing broken: what the conformance suite is tested with.

``MUTATIONS`` maps a name to the test that must catch it and to the classes that differ.
"""

from __future__ import annotations

import dataclasses
import heapq
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import trio
from plait.devices.host.describe import HostDescription
from plait.devices.host.event import HostEvent
from plait.devices.host.memory import HostAllocator
from plait.devices.host.platform import HostDevice, HostPlatform
from plait.devices.host.stream import HostStream
from plait.devices.host.workers import NOBODY, WorkerPool
from plait.devices.mark import Mark, mark_of
from plait.devices.protocol import EventStatus
from plait.devices.waiting import wait_mark
from plait.errors import OutOfMemory

PATIENCE_S = 1.0  # how long a broken operation blocks at most


class BrokenDevice(HostDevice):
    def __init__(
        self, stream_class=HostStream, event_class=HostEvent, allocator_class=HostAllocator, pool_class=None
    ):
        super().__init__()
        self.stream_class, self.event_class = stream_class, event_class
        self.allocator = allocator_class()
        if pool_class is not None:
            self.pools = {kind: pool_class(kind, pool.size) for kind, pool in self.pools.items()}

    def stream(self, **options):
        stream = super().stream(**options)
        stream.__class__ = self.stream_class
        if self.event_class is not HostEvent:
            record = stream.record

            def record_other(event=None, *, timing=True):
                return record(self.event() if event is None else event, timing=timing)

            stream.record = record_other
        return stream

    def event(self):
        return self.event_class()


MUTATIONS: dict[str, tuple[str, Callable[[], HostPlatform]]] = {}


def caught_by(test: str, kind: str):
    """Enter a class under its name: a platform that uses it as ``kind`` must fail ``test``."""

    def enter(broken: Any) -> Any:
        MUTATIONS[broken.__name__] = (test, lambda: HostPlatform(BrokenDevice(**{f"{kind}_class": broken})))
        return broken

    return enter


# Streams


@caught_by("test_operations_run_in_order", "stream")
class OutOfOrder(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        super().enqueue(function, *args, **kwargs)
        self._operations.rotate(1)


@caught_by("test_arguments_reach_the_function", "stream")
class DropsKeywords(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        super().enqueue(function, *args)


@caught_by("test_enqueue_does_not_wait_for_the_work", "stream")
class RunsAtOnce(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        function(*args, **kwargs)


@caught_by("test_a_stream_runs_one_operation_at_a_time", "stream")
class ThreadPerOperation(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        threads = self.__dict__.setdefault("threads", [])
        threads.append(threading.Thread(target=function, args=args, kwargs=kwargs))
        threads[-1].start()

    async def synchronize(self):
        for thread in self.__dict__.get("threads", ()):
            thread.join()


@caught_by("test_several_threads_enqueue_on_one_stream", "stream")
class LosesSome(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        if args != ((2, 250),):
            super().enqueue(function, *args, **kwargs)


@caught_by("test_wait_orders_two_streams", "stream")
class IgnoresWaits(HostStream):
    def wait(self, awaited):
        if not isinstance(awaited, HostEvent):
            super().wait(awaited)


@caught_by("test_wait_for_a_stream_takes_what_it_holds_at_that_moment", "stream")
class WaitsForLaterWork(HostStream):
    def wait(self, awaited):
        if not isinstance(awaited, HostStream):
            super().wait(awaited)
            return
        settled = threading.Event()
        self.enqueue(lambda: mark_of(awaited).subscribe(settled.set))
        self.enqueue(settled.wait, PATIENCE_S * 20)


@caught_by("test_wait_for_itself_or_for_a_thing_is_refused", "stream")
class WaitsForItself(HostStream):
    def wait(self, awaited):
        if awaited is not self:
            super().wait(awaited)


@caught_by("test_a_blocked_stream_holds_up_no_other", "stream")
class BlocksWorkers(HostStream):
    def wait(self, awaited):
        opened = threading.Event()
        mark_of(awaited).subscribe(opened.set)
        self.enqueue(opened.wait, PATIENCE_S * 20)


@caught_by("test_a_failed_stream_stays_failed", "stream")
class SwallowsFailure(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        def quiet():
            try:
                function(*args, **kwargs)
            except Exception:
                return

        super().enqueue(quiet)


@caught_by("test_a_failed_stream_stays_failed", "stream")
class ForgetsFailure(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        if not self._operations:
            self.error = None
        super().enqueue(function, *args, **kwargs)


@caught_by("test_failure_spreads_to_the_stream_that_waits", "stream")
class KeepsFailureToItself(HostStream):
    def wait(self, awaited):
        mark, passed = mark_of(awaited), Mark()
        if awaited is not self and mark is not None:
            mark.subscribe(passed.settle)
            super().wait(HostEvent())
            event = HostEvent()
            event.move(passed)
            super().wait(event)


class _PoisonedDevice(BrokenDevice):
    failed: BaseException | None = None

    def stream(self, **options):
        stream = super().stream(**options)
        stream.error = self.failed
        return stream


class _Poisons(HostStream):
    def enqueue(self, function, /, *args, **kwargs):
        def remember():
            try:
                function(*args, **kwargs)
            except Exception as error:
                self.device.failed = error
                raise

        super().enqueue(remember)


MUTATIONS["PoisonsTheDevice"] = (
    "test_failure_stays_in_its_stream",
    lambda: HostPlatform(_PoisonedDevice(stream_class=_Poisons)),
)


@caught_by("test_a_failed_stream_waits_for_nothing", "stream")
class WaitsThoughFailed(HostStream):
    def wait(self, awaited):
        self.held = mark_of(awaited)

    def record(self, event=None, *, timing=True):
        event = super().record(event, timing=timing)
        event.move(self.held)
        return event


@caught_by("test_a_closed_stream_refuses_and_finishes", "stream")
class NeverCloses(HostStream):
    def close(self):
        pass


@caught_by("test_a_closed_stream_refuses_and_finishes", "stream")
class DropsWhatItHolds(HostStream):
    def close(self):
        super().close()
        self._operations.clear()


@caught_by("test_synchronize_waits_and_is_a_checkpoint", "stream")
class SynchronizesAtOnce(HostStream):
    async def synchronize(self):
        await trio.lowlevel.checkpoint()


@caught_by("test_synchronize_waits_and_is_a_checkpoint", "stream")
class SynchronizesWithoutCheckpoint(HostStream):
    async def synchronize(self):
        if not self.snapshot().settled:
            await super().synchronize()


@caught_by("test_cancelling_synchronize_leaves_the_stream_alone", "stream")
class DiesOfCancelling(HostStream):
    async def synchronize(self):
        try:
            await super().synchronize()
        except trio.Cancelled as error:
            self.error = error
            raise


@caught_by("test_more_urgent_streams_go_first", "pool")
class IgnoresPriority(WorkerPool):
    def push(self, stream):
        start = super().push(stream)
        self._ready = [(0, turn, queued) for _, turn, queued in self._ready]
        heapq.heapify(self._ready)
        return start


@caught_by("test_a_long_stream_yields_to_a_more_urgent_one", "pool")
class NeverYields(WorkerPool):
    urgency = property(lambda self: NOBODY, lambda self, value: None)


MUTATIONS["NeverShares"] = ("test_equally_urgent_streams_share", MUTATIONS["NeverYields"][1])


@caught_by("test_a_stream_knows_what_it_is", "stream")
class Nameless(HostStream):
    name = property(lambda self: "stream", lambda self, value: None)


# Copies


@caught_by("test_copy_that_does_not_match_is_refused_at_once", "stream")
class Broadcasts(HostStream):
    def copy(self, target, source):
        self.enqueue(np.copyto, target, np.resize(source, target.shape))


@caught_by("test_copy_keeps_its_place_in_the_stream", "stream")
class CopiesAtOnce(HostStream):
    def copy(self, target, source):
        super().copy(target, source.copy())


@caught_by("test_copy_and_fill_of_strided_arrays", "stream")
class IgnoresStrides(HostStream):
    def fill(self, target, value):
        whole = target if target.flags.c_contiguous else target.base
        super().fill(whole, value)


@caught_by("test_copy_of_nothing_and_of_a_scalar", "stream")
class RefusesEmptyCopies(HostStream):
    def copy(self, target, source):
        if target.size == 0:
            raise ValueError("nothing to copy")
        super().copy(target, source)


@caught_by("test_fill_sets_every_element", "stream")
class FillsTooFew(HostStream):
    def fill(self, target, value):
        super().fill(target[:-1], value) if target.ndim and value else super().fill(target, value)


# Events


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
    given_up = property(
        lambda self: self.victims[id(self)], lambda self, mark: self.victims.update({id(self): mark})
    )

    def unsubscribe(self, key):
        super().unsubscribe(key)
        self.given_up.settle(RuntimeError("cancelled"))


# Memory


@caught_by("test_blocks_are_aligned_and_apart", "allocator")
class Misaligns(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        block = super().allocate(nbytes, alignment=alignment)
        block.address += 1
        return block


@caught_by("test_blocks_are_aligned_and_apart", "allocator")
class Overlaps(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        block = super().allocate(nbytes, alignment=alignment)
        block.address = 1 << 30
        return block


@caught_by("test_zero_bytes_are_legal", "allocator")
class RefusesNothing(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        if nbytes == 0:
            raise OutOfMemory("0 bytes")
        return super().allocate(nbytes, alignment=alignment)


@caught_by("test_wrong_requests_are_refused", "allocator")
class TakesAnyAlignment(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        return super().allocate(nbytes, alignment=64 if alignment <= 0 else alignment)


@caught_by("test_a_block_is_freed_once_and_where_it_came_from", "allocator")
class FreesTwice(HostAllocator):
    def free(self, block, *, stream=None):
        if not getattr(block, "_freed", False):
            super().free(block, stream=stream)


@caught_by("test_statistics_count_what_happens", "allocator")
class ForgetsThePeak(HostAllocator):
    def statistics(self):
        found = super().statistics()
        return {**found, "peak": found["in_use"]}


@caught_by("test_statistics_count_what_happens", "allocator")
class Leaks(HostAllocator):
    def free(self, block, *, stream=None):
        block._freed = True


@caught_by("test_out_of_memory_says_what_was_asked_and_what_there_is", "allocator")
class SaysLittle(HostAllocator):
    def _exhausted(self, nbytes):
        return OutOfMemory("out of memory")


@caught_by("test_out_of_memory_says_what_was_asked_and_what_there_is", "allocator")
class RaisesMemoryError(HostAllocator):
    def _exhausted(self, nbytes):
        return MemoryError(nbytes)


@caught_by("test_out_of_memory_says_what_was_asked_and_what_there_is", "allocator")
class CountsRefusals(HostAllocator):
    def _exhausted(self, nbytes):
        error = super()._exhausted(nbytes)
        self._in_use += nbytes
        return error


@caught_by("test_free_behind_a_stream_outlives_its_work", "allocator")
class FreesTooSoon(HostAllocator):
    def free(self, block, *, stream=None):
        if stream is not None:
            stream.enqueue(lambda: None)
            for operation in list(stream._operations):
                if operation[0] is np.copyto and operation[1][0].dtype == np.uint8:
                    stream._operations.remove(operation)
        super().free(block)


@caught_by("test_several_threads_allocate", "allocator")
class CountsByThread(HostAllocator):
    def __init__(self):
        super().__init__()
        self.owner = threading.get_ident()

    def statistics(self):
        return super().statistics()

    def allocate(self, nbytes, *, alignment=64, stream=None):
        block = super().allocate(nbytes, alignment=alignment)
        if threading.get_ident() != self.owner:
            self._allocations -= 1
        return block


# The platform


class _Forgetful(HostPlatform):
    def devices(self):
        return (HostDevice(),)


MUTATIONS["MakesNewDevices"] = ("test_platform_lists_the_same_devices_every_time", _Forgetful)


@dataclasses.dataclass(frozen=True)
class _Lossy(HostDescription):
    def to_json(self):
        return dataclasses.replace(self, memory_bytes=None).__class__.__base__.to_json(
            dataclasses.replace(self, memory_bytes=None)
        )


class _LossyDevice(BrokenDevice):
    description = _Lossy(memory_bytes=1 << 30)


MUTATIONS["LosesAField"] = ("test_description_survives_json", lambda: HostPlatform(_LossyDevice()))


def broken() -> HostPlatform:
    """For ``pytest --plait-platform=broken_platform:broken``."""
    return MUTATIONS["FreesTwice"][1]()
