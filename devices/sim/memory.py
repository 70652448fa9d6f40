"""Memory that is only counted."""

from __future__ import annotations

from plait.errors import OutOfMemory


class Tally:
    """Bytes of one memory space: in use, their peak, the limit if there is one."""

    __slots__ = ("in_use", "limit", "name", "peak", "refused")

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self.limit = limit
        self.in_use = self.peak = self.refused = 0

    def take(self, nbytes: int) -> None:
        """So many bytes more; OutOfMemory if they do not fit."""
        wanted = self.in_use + nbytes
        if self.limit is not None and wanted > self.limit:
            self.refused += 1
            raise OutOfMemory(
                f"{self.name} (simulated) cannot serve {nbytes} bytes: {self.in_use} bytes in use, "
                f"limit {self.limit} bytes, peak {self.peak}"
            )
        self.in_use = wanted
        self.peak = max(self.peak, wanted)

    def give(self, nbytes: int) -> None:
        """So many bytes less."""
        self.in_use -= nbytes
