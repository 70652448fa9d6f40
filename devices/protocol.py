"""The protocol that every platform implements: what may be asked of devices, streams, events and memory."""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


class EventStatus(enum.Enum):
    """What an event can be: not yet reached, done, or failed (its stream had failed when it was reached)."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@runtime_checkable
class Event(Protocol):
    """A mark in a stream.

    Never recorded counts as done; recording again moves it, waits already taken stay.
    """

    @property
    def status(self) -> EventStatus: ...

    @property
    def done(self) -> bool:
        """True once reached without failure; raises the stream's error if it failed, so a dead device never
        reads as pending.
        """
        ...

    @property
    def error(self) -> BaseException | None: ...

    def elapsed(self, earlier: Event) -> float:
        """Device seconds from ``earlier`` to this event; DeviceError if either is pending or was recorded
        without timing.
        """
        ...

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call once when settled, on any thread (at once if it already is).

        The callback must not raise or block.
        """
        ...

    def __await__(self) -> Generator[Any, Any, None]: ...


@runtime_checkable
class Stream(Protocol):
    """An in-order queue of a device.

    The first failure is sticky: what follows is skipped, events after it fail.
    """

    @property
    def name(self) -> str: ...

    @property
    def device(self) -> Device: ...

    @property
    def priority(self) -> int: ...

    @property
    def error(self) -> BaseException | None: ...

    def enqueue(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Call ``function`` in stream order; its result is dropped, its exception fails the stream."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copy between arrays of one shape and dtype, strided or empty too; DeviceError at once if they do
        not match.
        """
        ...

    def fill(self, target: Any, value: Any) -> None:
        """Set every element to one value; DeviceError at once if the dtype cannot hold it."""
        ...

    def record(self, event: Event | None = None, *, timing: bool = True) -> Event: ...

    def wait(self, awaited: Event | Stream) -> None:
        """Hold what is enqueued later until the event, or all that the other stream holds now, is done.
        Itself: DeviceError.

        The event may be of another platform. If it fails, this stream fails with the same error: what follows
        lacks its input.
        """
        ...

    async def synchronize(self) -> None:
        """Wait until all that is enqueued now is done; raises the stream's error.

        Cancelling leaves the stream alone.
        """
        ...

    def close(self) -> None:
        """Refuse what comes later; what is enqueued still runs, and ``synchronize`` still waits for it.

        Twice is fine.
        """
        ...


@runtime_checkable
class Block(Protocol):
    """Bytes from an allocator."""

    @property
    def nbytes(self) -> int: ...

    @property
    def address(self) -> int: ...

    def array(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        """The bytes from the start on as the platform's array type (NumPy's on the host); DeviceError if they
        are too few.
        """
        ...


@runtime_checkable
class Allocator(Protocol):
    """One memory space. Zero bytes are legal; failure raises OutOfMemory with request, in use, limit."""

    def allocate(self, nbytes: int, *, alignment: int = 64, stream: Stream | None = None) -> Block: ...

    def free(self, block: Block, *, stream: Stream | None = None) -> None: ...

    def statistics(self) -> Mapping[str, int]:
        """A snapshot: ``allocations`` so far, ``blocks`` live, bytes ``in_use``, ``peak``, ``largest``;
        ``limit`` if there is one.
        """
        ...


@runtime_checkable
class Device(Protocol):
    """One place where work runs; the same object for the same name."""

    @property
    def name(self) -> str: ...

    @property
    def platform(self) -> str: ...

    @property
    def ordinal(self) -> int: ...

    @property
    def description(self) -> Any: ...

    @property
    def allocator(self) -> Allocator: ...

    def stream(self, *, priority: int = 0, kind: str = "compute", name: str | None = None) -> Stream: ...

    def event(self) -> Event:
        """An event that is not recorded yet, for ``Stream.record``."""
        ...


@runtime_checkable
class Platform(Protocol):
    """A kind of device and how to reach it.

    ``absent`` says in one line why there is none, and what to install or free.
    """

    @property
    def name(self) -> str: ...

    @property
    def absent(self) -> str | None: ...

    def devices(self) -> Sequence[Device]: ...
