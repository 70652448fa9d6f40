"""A GPU stream: what is enqueued goes through a queue on the host, served in order, into a stream of the driver.

The queue on the host is what makes waits for events of other platforms, sticky failures and functions in stream
order possible. A scheduler, which needs none of these, uses the launch queue underneath directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from plait.devices.gpu import driver
from plait.devices.gpu.event import GpuEvent, Recording
from plait.devices.gpu.queue import LaunchQueue
from plait.devices.host.stream import HostStream
from plait.devices.mark import Mark
from plait.devices.protocol import Event, Stream
from plait.devices.waiting import wait_mark
from plait.errors import DeviceError

if TYPE_CHECKING:
    from plait.devices.gpu.device import GpuDevice


class _Issued:
    """Stands for an event whose recording the driver has been told of."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def snapshot(self) -> Mark | None:
        return self._recording.issued


class GpuStream:
    """In order, asynchronous, with a priority; the first failure is sticky."""

    def __init__(self, device: GpuDevice, queue: LaunchQueue, front: HostStream, *, kind: str, priority: int) -> None:
        self.name = front.name
        self.device = device
        self.priority = priority
        self.kind = kind
        self.queue = queue
        self._front = front

    def __repr__(self) -> str:
        return f"<GpuStream {self.name} priority={self.priority}{' failed' if self.error else ''}>"

    @property
    def driver(self) -> Any:
        """The ``cupy.cuda.Stream`` underneath."""
        return self.queue.driver

    @property
    def error(self) -> BaseException | None:
        return self._front.error or self.device.error

    def __cuda_stream__(self) -> tuple[int, int]:
        """The stream protocol of CUDA's Python packages: version and pointer."""
        return 0, self.queue.pointer

    def enqueue(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Call ``function`` on a worker thread in stream order, with device and stream current.

        What it launches follows what was launched before and is not waited for; its exception fails the stream.
        """
        self._front.enqueue(self.queue.launch, function, *args, **kwargs)

    def copy(self, target: Any, source: Any) -> None:
        """Copy between arrays of one shape and dtype, on the host or any GPU; strided and empty ones are fine."""
        _check(target, self.name, "copy")
        if np.shape(source) != target.shape:
            raise DeviceError(
                f"copy on stream {self.name}: the source has shape {np.shape(source)}, the target {target.shape}"
            )
        if not isinstance(source, driver.cupy().ndarray):
            source = np.asarray(source)
        if source.dtype != target.dtype:
            raise DeviceError(
                f"copy on stream {self.name}: the source has dtype {source.dtype}, the target {target.dtype}"
            )
        self._front.enqueue(self._copy, target, source)

    def _copy(self, target: Any, source: Any) -> None:
        queue, here = self.queue, driver.cupy().ndarray
        if isinstance(target, here):
            if isinstance(source, here):
                queue.copy_here(target, source)
            else:
                queue.copy_in(target, source)
        elif isinstance(source, here):
            queue.copy_out(target, source).finish()
        else:
            queue.launch(self.driver.synchronize)  # a copy before may still read or write the same host memory
            np.copyto(target, source)

    def fill(self, target: Any, value: Any) -> None:
        """Set every element of ``target`` to ``value``; DeviceError at once if the dtype cannot hold it."""
        _check(target, self.name, "fill")
        element = self._front.element(value, target.dtype)
        self._front.enqueue(self._fill, target, element)

    def _fill(self, target: Any, element: np.ndarray[Any, Any]) -> None:
        if isinstance(target, np.ndarray):
            self.queue.launch(self.driver.synchronize)
            np.copyto(target, element)
        else:
            self.queue.launch(target.fill, element[()])

    def record(self, event: Event | None = None, *, timing: bool = True) -> GpuEvent:
        """Mark this point of the stream."""
        if event is None:
            event = GpuEvent()
        elif not isinstance(event, GpuEvent):
            raise DeviceError(f"stream {self.name} can record events of its own platform only, not {event!r}")
        event.move(self._recording(timing=timing))
        return event

    def _recording(self, *, timing: bool) -> Recording:
        recording = Recording(self.queue, timing=timing)
        self._front.enqueue(recording.issue)
        recording.issued = self._front.snapshot()
        return recording

    def wait(self, awaited: Event | Stream) -> None:
        """Hold what is enqueued later until the event, or all that the other stream holds now, is done.

        The event may be of any platform. Failure spreads: if what is awaited fails, this stream fails with it.
        """
        if cast(object, awaited) is self:
            raise DeviceError(f"stream {self.name} cannot wait for itself")
        if self._front.closed:
            raise DeviceError(f"stream {self.name} is closed")
        recording = None
        if isinstance(awaited, GpuStream):
            recording = awaited._recording(timing=False)
        elif isinstance(awaited, GpuEvent):
            recording = awaited.recording
            if recording is None:
                return
        if recording is None:
            self._front.wait(awaited)
            return
        if recording.queue is self.queue:
            return  # its own past
        self._front.wait(_Issued(recording))  # type: ignore[arg-type]
        self._front.enqueue(lambda: self.queue.wait_event(recording.event))

    async def synchronize(self) -> None:
        """Wait until all that is enqueued now is done; raises the stream's error. Cancelling leaves it alone."""
        await wait_mark(self.snapshot())

    def snapshot(self) -> Mark:
        """The mark behind all that the stream holds now."""
        if self._front.closed:
            return self._front.snapshot()
        return self._recording(timing=False).mark()

    def close(self) -> None:
        """Refuse what comes later; what is enqueued still runs, then the driver's stream goes back to its pool."""
        if not self._front.closed:
            last = self._recording(timing=False).mark()
            self._front.close()
            last.subscribe(lambda: self.device.give_back(self.queue))


def _check(target: Any, stream: str, what: str) -> None:
    if isinstance(target, np.ndarray):
        if not target.flags.writeable:
            raise DeviceError(f"{what} on stream {stream}: the target is read-only")
    elif not isinstance(target, driver.cupy().ndarray):
        raise DeviceError(
            f"{what} on stream {stream}: the target must be a CuPy or NumPy array, not {type(target).__name__}"
        )
