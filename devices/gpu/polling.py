"""Completion by looking again and again: a patrol that queries the driver, also the guard behind the other ways."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from plait.devices.gpu.driver import translated
from plait.devices.gpu.followed import Followed, current_device, start_thread
from plait.devices.mark import Mark
from plait.errors import DeviceError
from trio.lowlevel import enable_ki_protection

SHORTEST_S, LONGEST_S, SHARE = 20e-6, 2e-3, 1 / 16


def adaptive(waited_s: float) -> float:
    """Seconds to the next look: a share of the wait so far, so that what takes long is looked at seldom."""
    return min(max(waited_s * SHARE, SHORTEST_S), LONGEST_S)


class Patrol:
    """A thread that looks at everything followed, at a pace, while there is anything, and one pause longer."""

    def __init__(self, followed: Followed, ordinal: int, pace: Callable[[float], float]) -> None:
        self._followed = followed
        self._ordinal = ordinal
        self._pace = pace  # seconds since something happened -> seconds to the next look
        self.walking = False  # changed with the table's lock held
        self._pause_s = 0.0
        self._since_s = 0.0
        # Held by the patrol from look to look; a release cuts its pause short. Guards nothing.
        self._bell = threading.Lock()
        self._bell.acquire()

    def attend(self) -> None:
        """Something new is followed: walk, if not walking, and look soon, if the pace says so."""
        with self._followed.lock:
            self._since_s = monotonic()
            if self.walking:
                if self._pause_s > self._pace(0.0):
                    self._ring()
                return
            self.walking = True
        try:
            start_thread(self._walk, f"{self._followed.device} patrol")
        except RuntimeError as cause:
            self._give_up(DeviceError(f"no thread can be started to wait for {self._followed.device}: {cause}"))

    def dismiss(self) -> None:
        """Look now, so that a patrol with nothing left to see goes home soon."""
        with self._followed.lock:
            self._pause_s = 0.0
            self._ring()

    def _ring(self) -> None:
        if self._bell.locked():
            self._bell.release()

    def _walk(self) -> None:
        try:
            with current_device(self._ordinal):
                self._rounds()
        except Exception as raised:  # a lost device refuses even to be made current
            self._give_up(translated(raised, self._followed.device, "waiting for events"))

    def _rounds(self) -> None:
        followed, idle = self._followed, False
        while True:
            if followed.drain():
                self._since_s = monotonic()
            with followed.lock:
                was_idle, idle = idle, not followed.streams
                if idle and was_idle:
                    self.walking = False
                    return
                pause_s = self._pause_s = self._pace(monotonic() - self._since_s)
            self._bell.acquire(timeout=pause_s)

    def _give_up(self, failure: BaseException) -> None:
        with self._followed.lock:
            self.walking = False
        self._followed.fail(failure)


class Polling:
    """Settles marks by an adaptive patrol alone."""

    def __init__(self, device_name: str, ordinal: int) -> None:
        self._followed = Followed(device_name)
        self._patrol = Patrol(self._followed, ordinal, adaptive)

    @enable_ki_protection
    def follow(self, stream: int, event: Any, mark: Mark) -> None:
        """See ``Tracker``."""
        if self._followed.add(stream, event, mark):
            self._patrol.attend()

    @enable_ki_protection
    def close(self) -> None:
        """See ``Tracker``."""
        self._followed.close()
        self._patrol.dismiss()
