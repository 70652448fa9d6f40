"""A launch queue: one driver stream, and what a launching thread does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plait.devices.gpu import driver

if TYPE_CHECKING:
    from plait.devices.gpu.copies import OutCopy
    from plait.devices.gpu.device import GpuDevice


class Current:
    """A ``with`` block of ``LaunchQueue.current``; a class, since a generator would cost more than what is inside."""

    __slots__ = ("_before", "_doing", "_queue")

    def __init__(self, queue: LaunchQueue, doing: str) -> None:
        self._queue = queue
        self._doing = doing
        self._before = 0

    def __enter__(self) -> None:
        queue = self._queue
        runtime, ordinal = driver.runtime(), queue.device.ordinal
        self._before = runtime.getDevice()
        if self._before != ordinal:
            try:
                runtime.setDevice(ordinal)
            except Exception as error:
                raise self._translated(error) from error
        queue.driver.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        queue, runtime = self._queue, driver.runtime()
        if runtime.getDevice() != queue.device.ordinal:  # left so by what ran inside
            runtime.setDevice(queue.device.ordinal)
        queue.driver.__exit__(None, None, None)
        if self._before != queue.device.ordinal:
            runtime.setDevice(self._before)
        if isinstance(error, Exception):
            found = self._translated(error)
            if found is not error:
                raise found from error

    def _translated(self, error: Exception) -> BaseException:
        device = self._queue.device
        return device.noted(driver.translated(error, device.name, f"{self._doing} on stream {self._queue.name}"))


class LaunchQueue:
    """A non-blocking driver stream. Methods enqueue and return; one thread at a time may call them.

    Whatever the driver answers other than success is raised as a plait error; a lost device is noted on the device.
    """

    __slots__ = ("device", "driver", "followed", "kind", "name", "pointer", "priority", "recorded")

    def __init__(self, device: GpuDevice, stream: Any, *, priority: int, kind: str, name: str) -> None:
        self.device = device
        self.driver = stream
        self.pointer: int = stream.ptr
        self.priority = priority  # as the driver counts
        self.kind = kind
        self.recorded = self.followed = 0  # numbers of the last events recorded for, and followed by, plait's events
        self.name = name

    def __repr__(self) -> str:
        return f"<LaunchQueue {self.name}>"

    def current(self, doing: str = "work") -> Current:
        """Device and stream current on this thread inside, as before outside; driver errors translated."""
        return Current(self, doing)

    def launch(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` with device and stream current: what it launches is enqueued here."""
        with self.current():
            return function(*args, **kwargs)

    @staticmethod
    @contextmanager
    def named(name: str) -> Iterator[None]:
        """What this thread does inside is a range of that name in the vendor's tools: NVTX on CUDA, ROCTX on HIP."""
        nvtx = driver.cupy().cuda.nvtx
        nvtx.RangePush(name)
        try:
            yield
        finally:
            nvtx.RangePop()

    def record(self, *, timing: bool = False) -> Any:
        """A driver event that marks this point."""
        with self.current("recording an event"):
            return self.record_here(timing)

    def record_here(self, timing: bool) -> Any:
        """``record`` for who is inside ``current`` already, whatever device was made current there since."""
        runtime, ordinal = driver.runtime(), self.device.ordinal
        if runtime.getDevice() != ordinal:
            runtime.setDevice(ordinal)
        event = driver.event_class()(True, False) if timing else self.device.take_event()
        event.record(self.driver)
        return event

    def wait_event(self, event: Any) -> None:
        """Hold what is enqueued later until the driver event, of this device or another, is reached."""
        with self.current("waiting for an event"):
            self.driver.wait_event(event)

    def wait_default(self, value: Any) -> None:
        """If ``value`` is a device array, wait for the default stream there: who made it on the host used that one."""
        if self.owns(value):
            with value.device:
                event = driver.event_class()(False, True)
                event.record(driver.cupy().cuda.Stream.null)
            self.wait_event(event)

    def copy_in(self, target: Any, source: Any) -> None:
        """Host to device; a pageable source has been read on return, a pinned one is read later. Blocks the thread."""
        self.device.copier.copy_in(target, source, self.driver)

    def copy_out(self, target: Any, source: Any) -> OutCopy:
        """Device to host; ``finish`` of the result blocks until the bytes are there."""
        return self.device.copier.copy_out(target, source, self.driver)

    def copy_here(self, target: Any, source: Any) -> None:
        """Copy into an array of this device from one of this or another device."""
        if self.is_here(source):
            self.device.copier.copy_within(target, source, self.driver)
        else:
            self.device.copier.copy_peer(target, source, self.driver)

    def empty(self, shape: Any, dtype: Any) -> Any:
        """A new array whose bytes are whatever they are, allocated in the order of this queue."""
        with self.current(f"allocating an array of shape {shape}, {dtype}"):
            return driver.cupy().empty(shape, dtype)

    def full(self, shape: Any, value: Any, dtype: Any) -> Any:
        """A new array filled with one value, allocated in the order of this queue."""
        with self.current(f"allocating an array of shape {shape}, {dtype}"):
            return driver.cupy().full(shape, value, dtype)

    @staticmethod
    def owns(value: Any) -> bool:
        """Whether ``value`` is an array of the kind that lives on such devices."""
        return isinstance(value, driver.cupy().ndarray)

    def is_here(self, value: Any) -> bool:
        """Whether a device array lives on this queue's device."""
        return int(value.device.id) == self.device.ordinal

    @staticmethod
    def elapsed_ms(earlier: Any, later: Any) -> float:
        """Device milliseconds between two timed driver events that are reached."""
        return float(driver.runtime().eventElapsedTime(earlier.ptr, later.ptr))

    def is_idle(self) -> bool:
        """Whether all that was enqueued is done; the driver's error if it is none of done and pending."""
        status = driver.runtime().streamQuery(self.pointer)
        if status in (driver.SUCCESS, driver.NOT_READY):
            return bool(status == driver.SUCCESS)
        raise self.device.noted(driver.error(status, self.device.name, f"asking stream {self.name}"))
