"""Cholesky factors of a symmetric positive definite matrix, tile by tile, checked against SciPy.

    python examples/cholesky.py matrix.npy 2048     # writes a matrix to try
    plait run examples/cholesky.py --input a=matrix.npy

Each tile is a buffer, and each step updates one of them in place. The program below is the textbook's triple loop; that
the updates of one column run side by side, and the next column starts before they are done, follows from what each
call reads and updates. The products are NumPy's, which lets go of the GIL; SciPy's wrappers of BLAS keep it, so only
the solves, a tenth of the work, use one.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import plait
from scipy import linalg
from scipy.linalg import blas

Matrix = npt.NDArray[np.float64]


def graph(a: Matrix, tile: int = 256) -> plait.Graph:
    """Factor ``a``; outputs the lower triangular ``l`` and how far it is from SciPy's."""
    if not isinstance(a, np.ndarray) or a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise plait.GraphError("a must be a square matrix in a .npy file")
    g = plait.Graph("cholesky")
    matrix = g.constant(a, name="a")
    lower = record(g, matrix, len(a), tile)
    g.output("l", lower)
    g.output("difference from SciPy", g.options(name="check").call(difference, matrix, lower))
    return g


def tiled_cholesky(n: int, tile: int = 256) -> plait.Graph:
    """The factorisation alone, of the input ``a``, an ``n`` x ``n`` matrix; its output is ``l``."""
    g = plait.Graph(f"cholesky {n}/{tile}")
    g.output("l", record(g, g.input("a", (n, n), "float64"), n, tile))
    return g


def record(g: plait.Graph, a: Any, n: int, tile: int) -> Any:
    """Record the factorisation of ``a``; gives the buffer of the result."""
    parts = [slice(start, min(start + tile, n)) for start in range(0, n, tile)]
    steps = range(len(parts))
    tiles = {}
    for i in steps:
        for j in range(i + 1):
            shape = parts[i].stop - parts[i].start, parts[j].stop - parts[j].start
            tiles[i, j] = g.buffer(f"tile:{i},{j}", shape)
            g.options(name=f"load:{i},{j}").copy(tiles[i, j], a[parts[i], parts[j]])

    for k in steps:
        g.options(name=f"factor:{k}").call(factor, plait.update(tiles[k, k]))
        for i in steps[k + 1 :]:
            g.options(name=f"solve:{i},{k}").call(solve, tiles[k, k], plait.update(tiles[i, k]))
        for j in steps[k + 1 :]:
            g.options(name=f"square:{j},{k}").call(
                subtract_product, tiles[j, k], tiles[j, k], plait.update(tiles[j, j])
            )
            for i in steps[j + 1 :]:
                g.options(name=f"product:{i},{j},{k}").call(
                    subtract_product, tiles[i, k], tiles[j, k], plait.update(tiles[i, j])
                )

    lower = g.buffer("l", (n, n), fill=0)
    for (i, j), part in tiles.items():
        g.options(name=f"store:{i},{j}").copy(lower[parts[i], parts[j]], part)
    return lower


def factor(tile: Matrix) -> None:
    """The tile becomes its own Cholesky factor."""
    tile[...] = np.linalg.cholesky(tile)


def solve(diagonal: Matrix, tile: Matrix) -> None:
    """tile = tile @ inverse(diagonal).T"""
    blas.dtrsm(1, diagonal.T, tile.T, lower=0, trans_a=1, overwrite_b=1)


def subtract_product(left: Matrix, right: Matrix, tile: Matrix) -> None:
    """tile -= left @ right.T"""
    tile -= left @ right.T


def difference(a: Matrix, lower: Matrix) -> float:
    """The largest difference from SciPy's factor, relative to its largest entry."""
    expected = linalg.cholesky(a, lower=True)
    return float(np.abs(lower - expected).max() / np.abs(expected).max())


def example_matrix(n: int, seed: int = 0) -> Matrix:
    """A random symmetric positive definite matrix."""
    half = np.random.default_rng(seed).standard_normal((n, n))
    return half @ half.T + n * np.eye(n)


if __name__ == "__main__":
    np.save(sys.argv[1], example_matrix(int(sys.argv[2])))
