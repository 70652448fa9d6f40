"""Free chunks by size: bins of doubling size, each sorted by size and address, and which bins hold something."""

from __future__ import annotations

from bisect import bisect_left, insort

GRAIN = 256  # bytes; every chunk starts at a multiple of it and has a multiple of it
BINS = 21  # of GRAIN * 2**i bytes, the last open-ended

_HANDLE_BITS, _ADDRESS_BITS = 24, 49
_SIZE_SHIFT = _HANDLE_BITS + _ADDRESS_BITS
_HANDLE = (1 << _HANDLE_BITS) - 1
MOST_CHUNKS = 1 << _HANDLE_BITS


def key_of(size: int, address: int, handle: int) -> int:
    """A chunk as one integer that sorts by size, then address: comparing integers is cheaper than tuples."""
    return (size >> 8) << _SIZE_SHIFT | (address >> 8) << _HANDLE_BITS | handle


class Bins:
    """Sorted keys per bin, and a bitmap of the bins that are not empty. Sizes in bytes, multiples of ``GRAIN``."""

    __slots__ = ("_bins", "_full")

    def __init__(self) -> None:
        self._bins: list[list[int]] = [[] for _ in range(BINS)]
        self._full = 0

    def __bool__(self) -> bool:
        return self._full != 0

    def add(self, key: int) -> None:
        """Put a chunk in."""
        index = min((key >> _SIZE_SHIFT).bit_length(), BINS) - 1
        insort(self._bins[index], key)
        self._full |= 1 << index

    def remove(self, key: int) -> None:
        """Take out a chunk that is in."""
        index = min((key >> _SIZE_SHIFT).bit_length(), BINS) - 1
        keys = self._bins[index]
        del keys[bisect_left(keys, key)]
        if not keys:
            self._full ^= 1 << index

    def fit(self, size: int) -> int:
        """Take out the smallest chunk of at least ``size``, of several the one at the lowest address; -1 if none."""
        units = size >> 8
        index = min(units.bit_length(), BINS) - 1
        keys = self._bins[index]
        at = bisect_left(keys, units << _SIZE_SHIFT)
        if at == len(keys):
            above = self._full >> index + 1
            if not above:
                return -1
            index += (above & -above).bit_length()
            keys, at = self._bins[index], 0
        handle = keys.pop(at) & _HANDLE
        if not keys:
            self._full ^= 1 << index
        return handle

    def handles(self) -> list[int]:
        """All chunks, smallest first."""
        return [key & _HANDLE for keys in self._bins for key in keys]

    def largest(self) -> int:
        """Bytes of the largest chunk; 0 if there is none."""
        return self._bins[self._full.bit_length() - 1][-1] >> _SIZE_SHIFT << 8 if self._full else 0
