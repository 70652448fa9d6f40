"""What the failed attempts of an item become: one error that says where, with what was raised as the cause."""

from __future__ import annotations

from collections.abc import Sequence

from plait.errors import WorkError
from plait.graph import WorkItem
from plait.scheduler.expand import Transfer


class Attempts(Exception):
    """All attempts of an item failed; carries one exception per attempt, oldest first."""

    def __init__(self, causes: list[Exception]) -> None:
        super().__init__(f"{len(causes)} attempts failed")
        self.causes = causes


def work_error(
    item: WorkItem | Transfer, cause: BaseException, device: str | None, stream: str | None, inputs: Sequence[str] = ()
) -> WorkError:
    """The WorkError of ``item``: one line that says where, with the original exception as the cause."""
    causes = cause.causes if isinstance(cause, Attempts) else [cause]
    last = causes[-1]
    attempts = f" after {len(causes)} attempts" if len(causes) > 1 else ""
    place = f" on stream {stream}" if stream else ""
    return WorkError(
        f"item {item.name!r} failed{attempts}{place}: {type(last).__name__}: {last} (recorded at {item.site})",
        item=item.name,
        device=device,
        stream=stream,
        site=item.site,
        causes=causes,
        inputs=inputs,
    )
