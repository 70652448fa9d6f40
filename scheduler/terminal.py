"""A watched run on a terminal: by rich where it is installed, else a line that is written over."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from plait.scheduler.run import Run
    from plait.scheduler.watch import Display, Snapshot

BAR = 24
EIGHTHS = " ▏▎▍▌▋▊▉█"


def terminal_display(stream: TextIO) -> Display:
    """The display for a terminal."""
    try:
        from rich.progress import Progress  # noqa: PLC0415  an extra
    except ImportError:
        return LineDisplay(stream)
    return RichDisplay(stream, Progress)


class LineDisplay:
    """One line, written over at each look and cleared at the end: what follows says how the run went."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, run: Run, snapshot: Snapshot) -> None:
        """Write the line anew."""
        width = shutil.get_terminal_size().columns - 1
        text = progress_line(snapshot, getattr(self._stream, "encoding", None) or "ascii")[:width]
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()

    def finish(self, run: Run, snapshot: Snapshot) -> None:
        """Clear the line."""
        self._stream.write("\r\x1b[K")
        self._stream.flush()


def progress_line(snapshot: Snapshot, encoding: str) -> str:
    """Name, share, bar and figures; a bar of ``#`` where the encoding has no blocks."""
    share = snapshot.progress.fraction
    eighths = round(share * BAR * 8)
    bar = "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
    line = f"{snapshot.name} {share:4.0%} ▕{bar:<{BAR}}▏ {'  '.join(snapshot.words())}"
    try:
        line.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return f"{snapshot.name} {share:4.0%} [{'#' * (eighths // 8):<{BAR}}] {'  '.join(snapshot.words())}"
    return line


class RichDisplay:
    """rich's progress bar, drawn only when the watcher looks: no thread of its own."""

    def __init__(self, stream: TextIO, progress: Any) -> None:
        from rich.console import Console  # noqa: PLC0415  an extra
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn  # noqa: PLC0415

        self._bar = progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: Any = None

    def update(self, run: Run, snapshot: Snapshot) -> None:
        """Draw the bar anew."""
        words, progress = "  ".join(snapshot.words()), snapshot.progress
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(snapshot.name, total=max(1, progress.total), words=words)
        completed = progress.done + progress.failed + progress.skipped
        self._bar.update(self._task, completed=completed, words=words, refresh=True)

    def finish(self, run: Run, snapshot: Snapshot) -> None:
        """Clear the bar."""
        if self._task is not None:
            self._bar.stop()
