"""Tiled programs whose data are larger than the limit, and the fewest tiles that a static tiling of them moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import plait

SIDE = 16
TILE_BYTES = SIDE * SIDE * 8
SHAPE = (SIDE, SIDE)


def make_tile(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-3, 4, SHAPE).astype(np.float64)


def add_product(c: Any, a: Any, b: Any) -> None:
    c += a @ b


def product(n: int, inputs: dict[str, Any] | None = None) -> plait.Graph:
    """C = A B of n x n tiles; A and B are made by items, or given if ``inputs`` is a dict to fill."""
    g = plait.Graph("product")

    def tile(name: str, seed: int) -> Any:
        if inputs is None:
            return g.options(nbytes=TILE_BYTES).call(make_tile, seed)
        inputs[name] = make_tile(seed)
        return g.input(name, SHAPE, "float64")

    a = [[tile(f"a{i}_{k}", i * n + k) for k in range(n)] for i in range(n)]
    b = [[tile(f"b{k}_{j}", 1000 + k * n + j) for j in range(n)] for k in range(n)]
    for i in range(n):
        for j in range(n):
            c = g.buffer(f"c{i}_{j}", SHAPE, "float64", fill=0)
            for k in range(n):
                g.call(add_product, plait.update(c), a[i][k], b[k][j])
            g.output(f"c{i}_{j}", c)
    return g


def product_expected(n: int) -> dict[str, np.ndarray[Any, Any]]:
    a = [[make_tile(i * n + k) for k in range(n)] for i in range(n)]
    b = [[make_tile(1000 + k * n + j) for j in range(n)] for k in range(n)]
    return {
        f"c{i}_{j}": sum((a[i][k] @ b[k][j] for k in range(n)), np.zeros(SHAPE)) for i in range(n) for j in range(n)
    }


def product_tiles_in(n: int, tiles: int) -> int:
    """Tiles of A and B brought in by the best blocks of p x q tiles of C that fit ``tiles`` with what streams by."""
    best = 2 * n**3
    for p in range(1, n + 1):
        for q in range(1, n + 1):
            if p * q + p + q <= tiles:
                rows, columns = -(-n // p), -(-n // q)
                best = min(best, n * (n * columns + n * rows))
    return best


def factor(a: Any) -> None:
    a[...] = np.linalg.cholesky(a)


def solve(a: Any, lower: Any) -> None:
    a[...] = np.linalg.solve(lower, a.T).T


def subtract_square(c: Any, a: Any) -> None:
    c -= a @ a.T


def subtract_product(c: Any, a: Any, b: Any) -> None:
    c -= a @ b.T


def spd(n: int) -> np.ndarray[Any, Any]:
    square = np.random.default_rng(7).standard_normal((n * SIDE, n * SIDE))
    return square @ square.T + n * SIDE * np.eye(n * SIDE)


def cholesky(n: int, matrix: np.ndarray[Any, Any]) -> plait.Graph:
    """The lower factor of ``matrix``, n x n tiles, in place, right-looking as recorded."""
    g = plait.Graph("cholesky")
    a: dict[tuple[int, int], Any] = {}
    for i in range(n):
        for j in range(i + 1):
            a[i, j] = g.buffer(f"l{i}_{j}", SHAPE, "float64")
            part = matrix[i * SIDE : (i + 1) * SIDE, j * SIDE : (j + 1) * SIDE].copy()
            g.call(np.copyto, plait.write(a[i, j]), part)
    for k in range(n):
        g.call(factor, plait.update(a[k, k]))
        for i in range(k + 1, n):
            g.call(solve, plait.update(a[i, k]), a[k, k])
        for i in range(k + 1, n):
            g.call(subtract_square, plait.update(a[i, i]), a[i, k])
            for j in range(k + 1, i):
                g.call(subtract_product, plait.update(a[i, j]), a[i, k], a[j, k])
    for (i, j), tile in a.items():
        g.output(f"l{i}_{j}", tile)
    return g


def cholesky_tiles(n: int, tiles: int) -> int:
    """Tiles moved in and out by the best left-looking blocks of p x q tiles; the last stays where it is."""
    best = 0
    for p in range(1, n + 1):
        for q in range(1, n + 1):
            if p * q + 1 + min(p, q) > tiles:
                continue
            moved = 0
            for left in range(0, n, q):
                for top in range(left, n, p):
                    block = {
                        (i, j) for i in range(top, min(n, top + p)) for j in range(left, min(n, left + q)) if i >= j
                    }
                    moved += 2 * len(block)
                    for k in range(min(n, left + q)):
                        needed = {
                            t for i, j in block for t in ([(i, k), (j, k)] if k < j else [(j, j)] if k == j else [])
                        }
                        moved += len(needed - block)
            best = min(best or moved, moved)
    return best
