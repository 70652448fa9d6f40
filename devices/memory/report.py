"""What a pool says of itself: figures, and the text of an out-of-memory error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_HOLDERS = 10


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A snapshot, in bytes but for the counts.

    ``allocations`` so far and ``blocks`` taken now; ``in_use`` by them, its ``peak`` and the ``largest`` of them so
    far; ``reserved`` from upstream in ``regions``, and its peak; of what is free, the ``largest_free`` block and what
    is ``waiting``: free for one stream only, until that has passed.
    """

    allocations: int
    blocks: int
    in_use: int
    peak: int
    largest: int
    reserved: int
    peak_reserved: int
    regions: int
    largest_free: int
    waiting: int
    limit: int | None

    @property
    def free(self) -> int:
        """Reserved, and not in use."""
        return self.reserved - self.in_use

    @property
    def fragmentation(self) -> float:
        """The part of the free bytes that does not lie in the largest free block: 0 if all does, or none is free."""
        return (self.free - self.largest_free) / self.free if self.free else 0.0


def out_of_memory(
    where: str,
    nbytes: int,
    figures: PoolStatistics,
    holders: Iterable[tuple[int, Any]],
    tried: Sequence[str],
    tag: Any = None,
) -> str:
    """Request, figures, what was tried, and the ten largest ``holders`` (bytes, tag), for ``OutOfMemory``."""
    request = f"{nbytes} bytes" + (f" ({format_bytes(nbytes)})" if nbytes >= 1024 else "")
    limit = "none" if figures.limit is None else f"{figures.limit} bytes"
    held = sorted(((size, "unnamed" if name is None else str(name)) for size, name in holders), reverse=True)
    lines = [
        f"{where} cannot serve {request}" + (f" for {tag}" if tag is not None else ""),
        f"  {figures.in_use} bytes in use in {figures.blocks} blocks, peak {figures.peak}; "
        f"{figures.reserved} reserved in {figures.regions} regions, limit {limit}",
        f"  {figures.free} bytes free"
        + (f", {figures.waiting} of them only for streams that have not passed" if figures.waiting else "")
        + f"; largest free block {figures.largest_free}",
        *(f"  tried: {each}" for each in tried),
    ]
    if held:
        lines.append(f"  largest of the {len(held)} blocks:")
        lines += [f"    {format_bytes(size):>9}  {name}" for size, name in held[:MOST_HOLDERS]]
    lines.append(f"  {_advice(nbytes, figures)}")
    return "\n".join(lines)


def format_bytes(value: int) -> str:
    """Three figures and a binary unit."""
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} B"


def _advice(nbytes: int, figures: PoolStatistics) -> str:
    if figures.limit is not None and nbytes > figures.limit:
        return "no order of work fits it into the limit: raise the limit, or cut the buffer"
    if figures.free >= nbytes:
        missing = "streams that have not passed hold it" if figures.waiting else "it is in pieces"
        return f"enough is free, but {missing}: wait for work in flight, or give back neighbours"
    return "free what holds it, run less at once, or raise the limit"
