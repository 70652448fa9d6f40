"""Rows of integers of different lengths in two flat arrays: four bytes a number, where a tuple takes forty or more."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


class Rows:
    """``rows[p]`` are the numbers of row p, in order; ``offsets`` (one more than rows) say where each begins. int32."""

    __slots__ = ("numbers", "offsets")

    def __init__(self, offsets: array[int], numbers: array[int]) -> None:
        self.offsets = offsets
        self.numbers = numbers

    def __getitem__(self, row: int) -> array[int]:
        return self.numbers[self.offsets[row] : self.offsets[row + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Rows:
        """From one sequence per row."""
        offsets, numbers = array("i", [0]), array("i")
        for row in rows:
            numbers.extend(row)
            offsets.append(len(numbers))
        return cls(offsets, numbers)

    @classmethod
    def grouped(cls, count: int, row: npt.NDArray[np.integer], number: npt.NDArray[np.integer]) -> Rows:
        """From pairs, in any order of the rows; the numbers of a row keep theirs."""
        offsets = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=count))))
        return cls(flat(offsets), flat(number[np.argsort(row, kind="stable")]))


def flat(numbers: npt.NDArray[np.integer]) -> array[int]:
    """The same numbers in an array that gives plain ints."""
    return array("i", numbers.astype(np.int32, copy=False).tobytes())
