"""Hosts with broken streams: order, waits, failure, closing, priorities, copies."""

from __future__ import annotations

import heapq
import threading

import numpy as np
import trio
from broken_base import MUTATIONS, PATIENCE_S, BrokenDevice, caught_by
from plait.devices.host.event import HostEvent
from plait.devices.host.platform import HostPlatform
from plait.devices.host.stream import HostStream
from plait.devices.host.workers import NOBODY, WorkerPool
from plait.devices.mark import Mark, mark_of


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
