"""Where the host's bytes go when memory is short: one nameless file, its free space kept in extents."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

_PIECE = 64 << 20  # bytes per system call, so that a stop is noticed between two
_PAGE = mmap.ALLOCATIONGRANULARITY


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of the file, from a multiple of the page size."""

    offset: int
    nbytes: int

    @property
    def span(self) -> int:
        return -(-self.nbytes // _PAGE) * _PAGE


class SpillFile:
    """A file without a name, made when first written to and gone with its last user.

    ``reserve``, ``release`` and ``mapped`` are called with the dispatcher's lock held; ``write`` and ``read``
    without, by any number of threads on different extents.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._opening = threading.Lock()  # guards that it is made once
        self._end = 0
        self._free: list[tuple[int, int]] = []  # (offset, span), ascending, no two adjacent
        self._lent: dict[Extent, int] = {}  # mapped for callers, and how often
        self._unwanted: set[Extent] = set()  # of these: free once they are unmapped
        self._unmapped: deque[Extent] = deque()  # told by finalizers, which may run anywhere

    def reserve(self, nbytes: int) -> Extent:
        """Room for so many bytes: the first hole that is large enough, else at the end."""
        self._take_back()
        wanted = Extent(0, nbytes).span
        for place, (offset, span) in enumerate(self._free):
            if span >= wanted:
                if span == wanted:
                    del self._free[place]
                else:
                    self._free[place] = (offset + wanted, span - wanted)
                return Extent(offset, nbytes)
        extent = Extent(self._end, nbytes)
        self._end += wanted
        return extent

    def release(self, extent: Extent) -> None:
        """Its room may be used again, as soon as no caller has it mapped."""
        self._take_back()
        if extent in self._lent:
            self._unwanted.add(extent)
        else:
            self._freed(extent)

    def _take_back(self) -> None:
        while self._unmapped:
            extent = self._unmapped.popleft()
            self._lent[extent] -= 1
            if not self._lent[extent]:
                del self._lent[extent]
                if extent in self._unwanted:
                    self._unwanted.discard(extent)
                    self._freed(extent)

    def _freed(self, extent: Extent) -> None:
        offset, span = extent.offset, extent.span
        place = bisect_left(self._free, (offset, span))
        if place < len(self._free) and offset + span == self._free[place][0]:
            span += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == offset:
            before = self._free.pop(place - 1)
            offset, span = before[0], before[1] + span
        if offset + span == self._end:
            self._end = offset
        else:
            insort(self._free, (offset, span))

    def write(self, extent: Extent, data: np.ndarray[Any, Any]) -> None:
        """Store a row of bytes; OSError if the disk will not take them."""
        file, view = self._opened(), data.data
        done = 0
        while done < extent.nbytes:
            done += os.pwrite(file, view[done : done + _PIECE], extent.offset + done)

    def read(self, extent: Extent, target: np.ndarray[Any, Any]) -> None:
        """Fill a row of bytes with what was stored."""
        file, view = self._opened(), target.data
        done = 0
        while done < extent.nbytes:
            got = os.preadv(file, [view[done : done + _PIECE]], extent.offset + done)
            if not got:
                raise OSError(f"the spill file ends before byte {extent.offset + extent.nbytes}")
            done += got

    def mapped(self, extent: Extent) -> np.ndarray[Any, Any]:
        """What was stored, as a row of bytes that is read when it is touched and is the caller's to change.

        Its room is not used again before the last array over it is gone. With the dispatcher's lock held.
        """
        private = mmap.mmap(self._opened(), extent.nbytes, access=mmap.ACCESS_COPY, offset=extent.offset)
        self._lent[extent] = self._lent.get(extent, 0) + 1
        weakref.finalize(private, self._unmapped.append, extent).atexit = False
        return np.frombuffer(private, np.uint8)

    def close(self) -> None:
        """Let go of the file; what is mapped stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        with self._opening:
            if self._file is None:
                handle, path = tempfile.mkstemp(prefix="plait-spill-")
                os.unlink(path)
                self._file = handle
            return self._file
