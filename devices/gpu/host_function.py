"""Completion by host functions: the driver calls back from the stream itself, on a thread of its own."""

from __future__ import annotations

from typing import Any

from plait.devices.gpu.driver import runtime, translated
from plait.devices.gpu.followed import Followed, current_device
from plait.devices.gpu.polling import Patrol
from plait.devices.mark import Mark
from trio.lowlevel import enable_ki_protection

WATCH_S = 0.05


class HostFunction:
    """Settles marks from the driver's thread.

    The driver calls no host function once the device has failed, so a patrol looks for that. It also lets go of the
    events: the last reference to one calls the driver, which a host function must not.
    """

    def __init__(self, device_name: str, ordinal: int) -> None:
        self._followed = Followed(device_name)
        self._ordinal = ordinal
        self._patrol = Patrol(self._followed, ordinal, lambda _: WATCH_S)

    @enable_ki_protection
    def follow(self, stream: int, event: Any, mark: Mark) -> None:
        """See ``Tracker``."""
        if not self._followed.add(stream, event, mark):
            return
        self._patrol.attend()

        def reached(_: int) -> None:
            mark.settle()

        try:
            with current_device(self._ordinal):
                runtime().launchHostFunc(stream, reached, 0)
        except Exception as raised:
            self._followed.drain(stream)
            mark.settle(translated(raised, self._followed.device, "waiting for an event"))

    @enable_ki_protection
    def close(self) -> None:
        """See ``Tracker``; a host function that is called later settles nothing any more."""
        self._followed.close()
        self._patrol.dismiss()
