"""Device replicas of constants that runs at work side by side share, instead of a copy for each."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from plait.devices import LaunchQueue
from plait.graph import CONSTANT
from plait.scheduler.expand import HOST, Transfer


def is_shareable(item: Transfer) -> bool:
    """Whether a transfer makes the replica of a constant that no item changes."""
    return item.buffer is not None and item.buffer.kind == CONSTANT and item.source == HOST and not item.copied


class SharedConstants:
    """The replicas on one device, for as long as some run holds them. Used by the device's copy-in lane alone."""

    def __init__(self) -> None:
        self._replicas: dict[int, tuple[Any, weakref.ref[Any], Any]] = {}  # by identity of the source, which is kept

    def find(self, queue: LaunchQueue, source: Any) -> Any:
        """The replica of ``source``, which the stream then waits for; None if no run has one."""
        entry = self._replicas.get(id(source))
        replica = None if entry is None else entry[1]()
        if entry is not None and replica is not None:
            queue.driver.wait_event(entry[2])
        return replica

    def add(self, queue: LaunchQueue, source: Any, replica: Any) -> None:
        """Let other runs have what has just been enqueued."""
        for key in [key for key, entry in self._replicas.items() if entry[1]() is None]:
            del self._replicas[key]
        if isinstance(source, np.ndarray) and replica is not source and queue.owns(replica):
            self._replicas[id(source)] = source, weakref.ref(replica), queue.driver.record()
