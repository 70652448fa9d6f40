"""The errors that plait raises: one root, one type per thing that can be at fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    _ErrorGroup = ExceptionGroup["WorkError"]
else:
    _ErrorGroup = ExceptionGroup


class PlaitError(Exception):
    """Root of every error that plait raises on purpose."""


class GraphError(PlaitError):
    """The graph, or what was bound to it, is wrong; nothing has run."""


class PlanError(PlaitError):
    """The graph is sound but cannot be laid over the given devices."""


class DeviceError(PlaitError):
    """A device, one of its streams or its memory failed, or was used wrongly."""


class OutOfMemory(DeviceError):
    """A memory space cannot serve a request; the message carries the request and the space's statistics."""


class DeviceLost(DeviceError):
    """A device no longer answers; nothing more can be enqueued on it."""


class WorkError(PlaitError):
    """One work item failed; the original exception is the ``__cause__``.

    Attributes name the place: ``item`` (its name), ``device`` and ``stream`` (names, None if the item never
    started), ``site`` (``file:line`` that recorded it) and ``causes`` (one exception per attempt, oldest first).
    """

    def __init__(
        self,
        message: str,
        *,
        item: str,
        device: str | None = None,
        stream: str | None = None,
        site: str | None = None,
        causes: Sequence[BaseException] = (),
    ) -> None:
        super().__init__(message)
        self.item = item
        self.device = device
        self.stream = stream
        self.site = site
        self.causes = tuple(causes)
        if self.causes:
            self.__cause__ = self.causes[-1]

    @property
    def cause(self) -> BaseException | None:
        """The exception of the last attempt."""
        return self.__cause__


class RunFailed(_ErrorGroup, PlaitError):
    """A run ended without all its outputs: the group of its items' errors, first failure first.

    ``stopped`` names the items that did not run because of it.
    """

    stopped: tuple[str, ...] = ()

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback."""
        from plait.tracebacks import render  # noqa: PLC0415  only where an error is shown

        return render(self)

    def derive(self, excs: Sequence[WorkError], /) -> RunFailed:  # type: ignore[override]
        group = type(self)(self.message, excs)
        group.stopped = self.stopped
        return group


class RunCancelled(RunFailed):
    """A run was told to stop; the group names the items that were in flight or not yet run."""
