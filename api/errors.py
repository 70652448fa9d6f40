"""The errors that plait raises: one root, one type per thing that can be at fault."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    started), ``site`` (``file:line`` that recorded it), ``causes`` (one exception per attempt, oldest first) and
    ``inputs`` (what it was given, as ``name dtype shape``).
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
        inputs: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.item = item
        self.device = device
        self.stream = stream
        self.site = site
        self.causes = tuple(causes)
        self.inputs = tuple(inputs)
        if self.causes:
            self.__cause__ = self.causes[-1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled whole, so that a failure crosses processes."""
        facts = {
            "item": self.item,
            "device": self.device,
            "stream": self.stream,
            "site": self.site,
            "causes": self.causes,
            "inputs": self.inputs,
        }
        return _work_error, (type(self), str(self.args[0]), facts)

    @property
    def cause(self) -> BaseException | None:
        """The exception of the last attempt."""
        return self.__cause__


_MOST = 5


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more}"


def _told(error: WorkError) -> list[str]:
    """One failed item in a few lines."""
    places = [f"recorded at {error.site}" if error.site else "", f"on {error.device}" if error.device else ""]
    places.append(f"stream {error.stream}" if error.stream else "")
    attempts = f" after {len(error.causes)} attempts" if len(error.causes) > 1 else ""
    lines = [f"item {error.item!r} failed{attempts}, {', '.join(filter(None, places))}".rstrip(", ")]
    if error.inputs:
        lines.append(f"  inputs: {_few(error.inputs)}")
    cause = error.cause
    if cause is None:
        return [str(error)]
    text = str(cause).splitlines() or [""]
    lines += [f"  {type(cause).__name__}: {text[0]}".rstrip(": "), *(f"    {line}" for line in text[1:])]
    walked = traceback.walk_tb(cause.__traceback__)
    theirs = [step for step in walked if not step[0].f_globals.get("__name__", "").startswith("plait.")]
    for frame in traceback.StackSummary.extract(iter(theirs[-3:])):
        lines.append(f"    at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}")
    return lines


def _work_error(kind: type[WorkError], message: str, facts: dict[str, Any]) -> WorkError:
    return kind(message, **facts)


class RunFailed(_ErrorGroup, PlaitError):
    """A run ended without all its outputs: the group of its items' errors, first failure first.

    ``stopped`` names the items that did not run because of it.
    """

    stopped: tuple[str, ...] = ()

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback."""
        from plait.tracebacks import render  # noqa: PLC0415  only where an error is shown

        return render(self)

    def __str__(self) -> str:
        """A few lines: what failed, where it was recorded and ran, on what inputs, how, and what did not run."""
        lines = [self.message]
        for error in self.exceptions[:_MOST]:
            lines += [
                f"  {line}" for line in (_told(error) if isinstance(error, WorkError) else str(error).splitlines())
            ]
        if len(self.exceptions) > _MOST:
            lines.append(f"  and {len(self.exceptions) - _MOST} more items")
        if self.stopped:
            lines.append(f"  not run because of it: {_few(self.stopped)}")
        return "\n".join(lines)

    def derive(self, excs: Sequence[WorkError], /) -> RunFailed:  # type: ignore[override]
        group = type(self)(self.message, excs)
        group.stopped = self.stopped
        return group


class RunCancelled(RunFailed):
    """A run was told to stop; the group names the items that were in flight or not yet run."""
