"""A GPU as a device: its streams, pooled by priority and kind, its memory, and whether it still answers."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

from plait.devices.gpu import driver
from plait.devices.gpu.callers import joins
from plait.devices.gpu.completion import Tracker, tracker
from plait.devices.gpu.copies import Copier
from plait.devices.gpu.describe import GpuDescription
from plait.devices.gpu.event import GpuEvent
from plait.devices.gpu.foreign import Foreign, stream_pointer
from plait.devices.gpu.memory import GpuAllocator, memory_info
from plait.devices.gpu.probe import describe
from plait.devices.gpu.queue import LaunchQueue
from plait.devices.gpu.stream import GpuStream
from plait.devices.host.platform import HOST
from plait.devices.host.stream import HostStream
from plait.devices.host.workers import WorkerPool
from plait.errors import DeviceError, DeviceLost

KINDS = ("compute", "copy")
FOREIGN = "foreign"
FRONT_WORKERS = 4  # threads that serve the queues in front of this device's streams; they launch and seldom compute
EVENTS = 4096  # as many untimed driver events are kept for the next runs
LANES = 3  # threads with which one scheduler launches, copies in and copies out

_E = TypeVar("_E", bound=BaseException)


class GpuDevice:
    """One GPU of CUDA or HIP; ``ordinal`` counts as the driver does, behind the visible-devices variables."""

    def __init__(self, platform: str, ordinal: int) -> None:
        self.platform = platform
        self.ordinal = ordinal
        self.name = f"{platform}:{ordinal}"
        self.error: DeviceLost | None = None
        self._numbers = itertools.count()
        self._fronts = WorkerPool(f"plait {self.name}", FRONT_WORKERS)
        self._lanes = WorkerPool(f"plait lanes {self.name}", LANES)
        # Guards the idle queues and the allocators: asked for from any thread, and who asks cannot wait.
        self._lock = threading.RLock()
        self._memory: dict[str, GpuAllocator] = {}
        self._events: deque[Any] = deque(maxlen=EVENTS)
        self._idle: dict[tuple[int, str], deque[LaunchQueue]] = {}

    def __repr__(self) -> str:
        return f"<GpuDevice {self.name}{' lost' if self.error else ''}>"

    @functools.cached_property
    def description(self) -> GpuDescription:
        """What the driver, NVML and the system say of it, read once."""
        return describe(self.ordinal)

    @property
    def allocator(self) -> GpuAllocator:
        """Device memory, from CuPy's allocator in force."""
        return self.memory("device")

    def memory(self, space: str) -> GpuAllocator:
        """The allocator of one memory space: ``device``, ``pinned`` (on the host) or ``managed``."""
        with self._lock:
            found = self._memory.get(space)
            if found is None:
                found = self._memory[space] = GpuAllocator(self, space)
            return found

    @functools.cached_property
    def copier(self) -> Copier:
        """Copies from, to and between GPUs."""
        return Copier(self.ordinal, self.name)

    @functools.cached_property
    def tracker(self) -> Tracker:
        """What settles marks when the driver's events are reached."""
        return tracker(self.name, self.ordinal)

    @functools.cached_property
    def priorities(self) -> tuple[int, int]:
        """The driver's least and greatest stream priority; there a smaller number is more urgent."""
        return self.description.stream_priorities

    def level(self, priority: int) -> int:
        """The driver's number for a plait priority: 0 is its default, a larger one more urgent, within its range."""
        least, greatest = self.priorities
        return max(greatest, min(least, -priority))

    def stream(self, *, priority: int = 0, kind: str = "compute", name: str | None = None) -> GpuStream:
        """A stream, served by a driver stream of the pool. A larger priority is more urgent."""
        if kind not in KINDS:
            raise DeviceError(f"a GPU stream is of kind {' or '.join(KINDS)}, not {kind!r}")
        if not isinstance(priority, int):
            raise DeviceError(f"a stream's priority is an integer, not {priority!r}")
        label = f"{self.name}/{kind}{next(self._numbers)}" if name is None else name
        queue = self.borrow(priority=priority, kind=kind, name=label)
        front = HostStream(HOST.devices()[0], self._fronts, priority=priority, kind=kind, name=label)
        return GpuStream(self, queue, front, kind=kind, priority=priority)

    def event(self) -> GpuEvent:
        """An event that is not recorded yet."""
        return GpuEvent()

    def adopt(self, stream: Any, *, name: str | None = None) -> GpuStream:
        """A plait stream over someone else's: CuPy's, PyTorch's, or an object with ``__cuda_stream__``.

        It is not owned: closing the plait stream leaves it as it is, and what its owner enqueues keeps its place among
        what is enqueued here. DeviceError if it is no stream.
        """
        label = f"{self.name}/adopted{next(self._numbers)}" if name is None else name
        queue = self.foreign_queue(stream_pointer(stream), stream, label)
        front = HostStream(HOST.devices()[0], self._fronts, priority=0, kind="compute", name=label)
        return GpuStream(self, queue, front, kind="compute", priority=0)

    def foreign_queue(self, pointer: int, owner: Any, name: str = "a foreign stream") -> LaunchQueue:
        """A launch queue over a driver stream that ``owner`` keeps alive."""
        with driver.cupy().cuda.Device(self.ordinal):
            stream = driver.cupy().cuda.Stream.from_external(Foreign(pointer, owner))
        return LaunchQueue(self, stream, priority=0, kind=FOREIGN, name=name)

    # ---- for schedulers ---------------------------------------------------------------------------------------

    def borrow(self, *, priority: int, kind: str, name: str) -> LaunchQueue:
        """A launch queue on an idle driver stream of that priority and kind, or on a new one."""
        self.check()
        level = self.level(priority)
        with self._lock:
            idle = self._idle.get((level, kind))
            stream = idle.pop().driver if idle else None
        if stream is None:
            try:
                with driver.cupy().cuda.Device(self.ordinal):
                    driver.runtime().memGetInfo()  # a lost device says so here; a CuPy stream half made would complain
                    stream = driver.cupy().cuda.Stream(non_blocking=True, priority=level)
            except Exception as error:
                raise self.noted(driver.translated(error, self.name, f"making stream {name}")) from error
        return LaunchQueue(self, stream, priority=level, kind=kind, name=name)

    def give_back(self, queue: LaunchQueue) -> None:
        """Put a queue's driver stream back; nothing may be enqueued through it any more. A lost device's is dropped."""
        if self.error is None and queue.kind != FOREIGN:
            with self._lock:
                self._idle.setdefault((queue.priority, queue.kind), deque()).append(queue)

    def take_event(self) -> Any:
        """A driver event without timing, from the pool or new; the device is current."""
        try:
            return self._events.pop()
        except IndexError:
            return driver.event_class()(True, True)

    def give_events(self, events: Iterable[Any]) -> None:
        """Put back events that are reached and that nobody looks at any more; a lost device's are dropped."""
        if self.error is None:
            self._events.extend(events)

    def lane(self, name: str, priority: int = 0) -> HostStream:
        """A stream of the host whose threads are there to launch on this device."""
        return HostStream(HOST.devices()[0], self._lanes, priority=priority, kind="compute", name=name)

    def joins(self) -> list[Any]:
        """Driver events behind what the caller's own streams hold now; DeviceLost if the device does not answer."""
        try:
            return joins([self.ordinal])
        except Exception as error:
            raise self.noted(driver.translated(error, self.name, "starting a run")) from error

    def noted(self, error: _E) -> _E:
        """``error``, remembered if it says that the device is lost."""
        if isinstance(error, DeviceLost) and self.error is None:
            self.error = error
        return error

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes by the driver; (0, 0) if it does not answer."""
        return memory_info(self.ordinal)

    def check(self) -> None:
        """Raise the error that the device was lost by, unless the driver answers again (someone has reset it)."""
        if self.error is None:
            return
        runtime = driver.runtime()
        before = runtime.getDevice()
        try:
            runtime.setDevice(self.ordinal)
            runtime.deviceSynchronize()
        except Exception as error:
            lost = DeviceLost(f"{self.name} is lost since: {self.error}; restart the process, or reset the device")
            lost.__cause__ = self.error
            raise lost from error
        finally:
            runtime.setDevice(before)
        with self._lock:
            self._idle.clear()
            self._events.clear()
        self.error = None
