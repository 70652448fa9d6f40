"""A failed run as a notebook shows it: item, user's own line and cause first, plait's own frames folded away."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

MOST_ERRORS, MOST_FRAMES, MOST_STOPPED = 5, 8, 6
RED, BOLD, SOFT, PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def tell_ipython(kind: type[BaseException]) -> None:
    """In IPython, have exceptions of ``kind`` shown by their ``_render_traceback_``.

    IPython asks any exception for that, except groups, which it prints whole; only a handler of its own can change
    it. A handler that the user has set stays in charge of what it was set for.
    """
    shell = ipython_shell()
    if shell is None or kind in shell.custom_exceptions:
        return
    before, theirs = shell.custom_exceptions, shell.CustomTB

    def show(shell: Any, etype: Any, value: Any, traceback: Any, tb_offset: Any = None) -> Any:
        if before and isinstance(value, before):
            return theirs(etype, value, traceback, tb_offset)
        lines = value._render_traceback_()
        shell._showtraceback(etype, value, lines)
        return lines

    shell.set_custom_exc((*before, kind), show)


def render(failure: Any) -> list[str]:
    """The lines of a RunFailed, with ANSI colours; IPython prints them in place of a traceback."""
    errors: Sequence[Any] = failure.exceptions
    lines = [f"{RED}{type(failure).__name__}{PLAIN}: {failure.message}"]
    for error in errors[:MOST_ERRORS]:
        lines += ["", *_error(error)]
    if len(errors) > MOST_ERRORS:
        lines += ["", f"… and {len(errors) - MOST_ERRORS} more errors: see .exceptions"]
    if failure.stopped:
        shown = ", ".join(failure.stopped[:MOST_STOPPED])
        more = len(failure.stopped) - MOST_STOPPED
        lines += ["", f"not run because of it: {shown}{f' and {more} more' if more > 0 else ''}"]
    outer = [frame for frame in _frames(failure.__traceback__) if frame]
    if outer:
        file, number, _ = outer[0]
        lines += ["", f"run from {place(file, number)}", *_source(file, number)]
    return lines


def _error(error: Any) -> Iterator[str]:
    cause = error.causes[-1] if error.causes else error
    where = error.stream or error.device
    yield f"{BOLD}item {error.item!r}{PLAIN}{f' on {where}' if where else ''}"
    attempts = f" (the last of {len(error.causes)} attempts)" if len(error.causes) > 1 else ""
    yield f"  {RED}{type(cause).__name__}{PLAIN}: {cause}{attempts}"
    frames = list(_frames(cause.__traceback__))
    others = [frame for frame in frames if frame is not None]
    own = [frame for frame in others if not _is_library(frame[0])]
    for file, number, function in reversed(own[-MOST_FRAMES:]):
        yield f"  in {function}, {place(file, number)}"
        yield from _source(file, number)
    if others and others[-1] not in own:
        file, number, function = others[-1]
        yield f"  {SOFT}raised by {function}, {file}:{number}{PLAIN}"
    hidden = len(frames) - len(own[-MOST_FRAMES:])
    if hidden:
        yield f"  {SOFT}… {hidden} frame{'s' if hidden > 1 else ''} of plait and of libraries{PLAIN}"
    if error.site:
        file, _, number = error.site.rpartition(":")
        yield f"  recorded at {site_place(error.site)}"
        yield from _source(file, int(number))


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int, str] | None]:
    """File, line and function of each frame, outermost first; None for one of plait's or of what it stands on."""
    while traceback is not None:
        frame = traceback.tb_frame
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        own = package in ("plait", "trio", "asyncio", "threading", "outcome", "IPython")
        yield None if own else (frame.f_code.co_filename, traceback.tb_lineno, frame.f_code.co_name)
        traceback = traceback.tb_next


def site_place(site: str) -> str:
    """A ``file:line`` of plait's as ``place`` says it."""
    file, _, number = site.rpartition(":")
    return place(file, int(number)) if number.isdecimal() else site


def _is_library(file: str) -> bool:
    import sysconfig  # noqa: PLC0415  takes a while, and only errors need it

    return (
        "site-packages" in file or "dist-packages" in file or file.startswith((sysconfig.get_path("stdlib"), "<frozen"))
    )


def _source(file: str, number: int) -> list[str]:
    line = linecache.getline(file, number).strip()
    return [f"{RED}---->{PLAIN} {number} {line}"] if line else []


def place(file: str, number: int) -> str:
    """``file:line``, or which cell of the notebook."""
    named = getattr(getattr(ipython_shell(), "compile", None), "format_code_name", lambda _: None)(file)
    return f"{' '.join(named)}, line {number}" if named else f"{file}:{number}"


def ipython_shell() -> Any:
    """IPython's shell if this runs in one, else None; IPython is not imported for it."""
    shell_of = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return shell_of() if shell_of is not None else None
