"""Completion by waiting: a thread for each stream blocks in the driver until the stream's oldest event is reached."""

from __future__ import annotations

from typing import Any

from plait.devices.gpu.driver import runtime, translated
from plait.devices.gpu.followed import Followed, current_device, start_thread
from plait.devices.gpu.polling import Patrol, adaptive
from plait.devices.mark import Mark
from plait.errors import DeviceLost
from trio.lowlevel import enable_ki_protection

MAX_THREADS = 16  # for each device: more streams than that at once are rare, and a woken crowd only waits for the GIL
WATCH_S = 0.05


class Waiter:
    """Settles marks from threads that wait with the GIL released.

    The driver cannot wait for the first of several streams, so each stream with something followed has its own
    thread, up to a limit. Beyond it the patrol looks after the others, and a thread takes them over when its own stream
    has nothing left. The patrol also notices a device that failed where nobody waits.
    """

    def __init__(self, device_name: str, ordinal: int) -> None:
        self._followed = Followed(device_name)
        self._ordinal = ordinal
        self._attended: set[int] = set()  # streams with a thread; guarded by the table's lock
        self._patrol = Patrol(self._followed, ordinal, self._pace)

    @enable_ki_protection
    def follow(self, stream: int, event: Any, mark: Mark) -> None:
        """See ``Tracker``."""
        if not self._followed.add(stream, event, mark):
            return
        # Read without the lock: a thread and the patrol leave with it held and only if nothing is followed, so either
        # they left before we added, and it shows here, or they stay.
        if stream in self._attended and self._patrol.walking:
            return
        with self._followed.lock:
            start = stream not in self._attended and len(self._attended) < MAX_THREADS
            if start:
                self._attended.add(stream)
        if start:
            self._start(stream)
        self._patrol.attend()

    @enable_ki_protection
    def close(self) -> None:
        """See ``Tracker``; a thread that the driver holds back goes when the driver lets it."""
        self._followed.close()
        self._patrol.dismiss()

    def _start(self, stream: int) -> None:
        try:
            start_thread(lambda: self._wait(stream), f"{self._followed.device} waiter")
        except RuntimeError:  # no more threads: the patrol sees to it, or says so
            with self._followed.lock:
                self._attended.discard(stream)

    def _pace(self, waited_s: float) -> float:
        everyone = len(self._attended) < MAX_THREADS or self._attended.issuperset(self._followed.streams)
        return WATCH_S if everyone else adaptive(waited_s)

    def _wait(self, stream: int) -> None:
        attended: int | None = stream
        try:
            with current_device(self._ordinal):
                while attended is not None:
                    self._serve(attended)
                    attended = self._next(attended)
        except Exception as raised:  # a lost device refuses even to be made current
            with self._followed.lock:
                self._attended.discard(stream if attended is None else attended)
            self._followed.fail(translated(raised, self._followed.device, "waiting for events"))

    def _serve(self, stream: int) -> None:
        followed, synchronize = self._followed, runtime().eventSynchronize
        while (oldest := followed.oldest(stream)) is not None:
            event, mark = oldest  # held here too: close() must not let go of an event that the driver waits for
            try:
                synchronize(event.ptr)
            except Exception as raised:
                if not followed.drain(stream):  # the driver failed at waiting, and calls the event pending
                    failure = translated(raised, followed.device, "waiting for an event")
                    followed.fail(failure, *(() if isinstance(failure, DeviceLost) else (stream,)))
            else:
                mark.settle()  # first of all: after a long sleep every line costs microseconds
                followed.drain(stream)

    def _next(self, stream: int) -> int | None:
        """Another stream that has no thread, or None; with the lock held nothing can come in between."""
        with self._followed.lock:
            followed = self._followed.streams
            if stream in followed:
                return stream
            self._attended.discard(stream)
            for other in followed:
                if other not in self._attended:
                    self._attended.add(other)
                    return other
        return None
