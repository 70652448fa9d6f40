"""The logger of the scheduler, in the tree ``plait``: silent until the application gives it a handler."""

from __future__ import annotations

import logging

log = logging.getLogger("plait.scheduler")
logging.getLogger("plait").addHandler(logging.NullHandler())


def is_heard() -> bool:
    """Whether a handler that writes would get a warning."""
    at: logging.Logger | None = log
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return log.isEnabledFor(logging.WARNING)
        at = at.parent if at.propagate else None
    return False
