"""The product of two matrices in .npy files, tile by tile, in less memory than either of them takes.

    python examples/out_of_core.py a.npy b.npy product.npy --memory 64

``--memory`` is in MiB. The program below loads every tile once and multiplies in the order in which one writes a
product down; that tiles are worked on in blocks, that those which are needed last make room, and that no more is held
than asked for, is the scheduler's business.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import plait


def tiled_product(a: Any, b: Any, out: Any, tile: int) -> plait.Graph:
    """``out[...] = a @ b``, for float64 matrices in memory or mapped from files."""
    g = plait.Graph("out of core product")
    rows, inner, columns = (cuts(length, tile) for length in (a.shape[0], a.shape[1], b.shape[1]))
    left = {(i, k): load(g, f"a:{i},{k}", a, rows[i], inner[k]) for i in range(len(rows)) for k in range(len(inner))}
    right = {
        (k, j): load(g, f"b:{k},{j}", b, inner[k], columns[j]) for k in range(len(inner)) for j in range(len(columns))
    }
    for i, height in enumerate(rows):
        for j, width in enumerate(columns):
            shape = height.stop - height.start, width.stop - width.start
            c = g.buffer(f"c:{i},{j}", shape, "float64", fill=0)
            for k in range(len(inner)):
                multiply = g.options(name=f"multiply:{i},{j},{k}")
                multiply.call(add_product, plait.update(c), left[i, k], right[k, j])
            g.options(name=f"store:{i},{j}").call(store, out, height, width, c)
    return g


def cuts(length: int, tile: int) -> list[slice]:
    return [slice(start, min(start + tile, length)) for start in range(0, length, tile)]


def load(g: plait.Graph, name: str, matrix: Any, rows: slice, columns: slice) -> Any:
    nbytes = (rows.stop - rows.start) * (columns.stop - columns.start) * 8
    return g.options(name=f"load {name}", nbytes=nbytes).call(read_tile, matrix, rows, columns)


def read_tile(matrix: Any, rows: slice, columns: slice) -> np.ndarray[Any, Any]:
    return np.array(matrix[rows, columns], dtype=np.float64)


def add_product(c: Any, a: Any, b: Any) -> None:
    c += a @ b


def store(out: Any, rows: slice, columns: slice, c: Any) -> None:
    out[rows, columns] = c


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", type=float, default=64, help="MiB that the run may hold")
    parser.add_argument("--tile", type=int, default=256)
    options = parser.parse_args()
    a, b = (np.load(path, mmap_mode="r") for path in (options.a, options.b))
    out = np.lib.format.open_memmap(options.out, "w+", np.float64, (a.shape[0], b.shape[1]))
    limit, ended = int(options.memory * 2**20), []
    scheduler = {"devices": "host", "memory_limit": limit}
    plait.run(tiled_product(a, b, out, options.tile), scheduler=scheduler, watch=ended.append)
    use, whole = ended[0].memory["host"], (a.size + b.size + out.size) * 8
    print(
        f"{whole / 2**20:.0f} MiB of matrices, {limit / 2**20:.0f} MiB allowed, {use.peak / 2**20:.0f} MiB held at most"
    )
    print(f"moved to make room: {use.moved_out / 2**20:.0f} MiB out, {use.moved_in / 2**20:.0f} MiB back in")


if __name__ == "__main__":
    main()
