"""Places on a line, in a given order and far enough apart, as near as can be to where each would like to be."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def settle(wanted: Sequence[float], weights: Sequence[float], apart: Sequence[float], half: float) -> list[float]:
    """The places x with ``x[i + 1] - x[i] >= apart[i]`` that make the weighted sum of squares to ``wanted`` least,
    all within ``-half`` and ``half``, where there must be room.

    Isotonic regression by pooling what is out of order (Ayer et al., Ann. Math. Statist. 1955), on wishes less the
    room that the places before take up.
    """
    room = list(itertools.accumulate(apart, initial=0.0))
    pools: list[tuple[float, float, int]] = []  # mean, weight, size
    for wish, own, taken in zip(wanted, weights, room, strict=True):
        mean, weight, size = wish - taken, own, 1
        while pools and pools[-1][0] >= mean:
            other, more, others = pools.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight += more
            size += others
        pools.append((mean, weight, size))
    low, high = -half, half - room[-1]
    flat = itertools.chain.from_iterable(itertools.repeat(mean, size) for mean, _, size in pools)
    return [min(max(mean, low), high) + taken for mean, taken in zip(flat, room, strict=True)]
