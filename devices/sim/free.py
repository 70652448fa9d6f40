"""Virtual time without a scheduler: it goes on as fast as it can, in a thread that lives while there is work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import trio
from plait.devices.sim.clock import VirtualTime


class FreeRun:
    """Streams ask from any thread; one thread alone touches the simulation."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._asked: deque[Callable[[], object]] = deque()  # unbounded, as a stream is: who enqueues decides
        # Guards whether there is a thread: it leaves only with nothing asked, and whoever asks then starts another.
        self._lock = threading.Lock()
        self._running = False

    @trio.lowlevel.enable_ki_protection
    def ask(self, call: Callable[[], object]) -> None:
        """Call on the simulation's thread, at the virtual time that has been reached."""
        with self._lock:
            self._asked.append(call)
            start = not self._running
            self._running = True
        if start:
            trio.lowlevel.start_thread_soon(self._main, _surface, "plait simulation")

    def _main(self) -> None:
        while True:
            while self._asked:
                self._asked.popleft()()
            if self._time.live:
                self._time.step()
                continue
            with self._lock:
                if not self._asked:
                    self._running = False
                    return


def _surface(result: Any) -> None:
    result.unwrap()  # what the simulation calls keeps its errors to itself; anything else is our bug
