"""How a platform is broken: the host with other classes, and the table of who must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.devices.host.event import HostEvent
from plait.devices.host.memory import HostAllocator
from plait.devices.host.platform import HostDevice, HostPlatform
from plait.devices.host.stream import HostStream

PATIENCE_S = 1.0  # how long a broken operation blocks at most


class BrokenDevice(HostDevice):
    def __init__(self, stream_class=HostStream, event_class=HostEvent, allocator_class=HostAllocator, pool_class=None):
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
