"""Edges of a photograph at three scales, tile by tile.

    plait run examples/photo_edges.py --input image="$(python examples/photo.py)" --trace run.json

Any file that Pillow reads will do. A small photo is enlarged to about 2.5 megapixels to filter it, so that fine edges
keep their place between its pixels; what is written has the photo's own size. Two outputs: the path of a PNG, white
where the strongest tenth of the edges are, and what was measured.

The grid of tiles is where the graph gets its width. Each tile is cut with a halo, its neighbours' pixels that the
filters reach for, so all tiles are filtered independently; one item in the middle sees all their histograms and sets
the threshold. Files are read and written on the loop, cuts and stitches go to copy streams, the rest to compute streams.
"""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import plait
import trio
from PIL import Image

Pixels = npt.NDArray[np.float32]

WORKING_PIXELS = 2_500_000
TILE = 256
SIGMAS = (0.7, 1.4, 2.8)  # of the Gaussians, in pixels of the photo
SHOWN = 0.1  # of all pixels, how many are drawn as edges
BINS = 1024


def graph(image: str, output: str = "") -> plait.Graph:
    """The graph for one photo; only the header of the file is read here. ``output`` is where the PNG goes."""
    target = output or f"out/{Path(image).stem}.edges.png"
    with Image.open(image) as header:
        width, height = header.size
    scale = max(1, round((WORKING_PIXELS / (width * height)) ** 0.5))
    filters = [gaussian_sobel(sigma * scale) for sigma in SIGMAS]
    halo = max(len(smooth) for smooth, _ in filters) // 2
    rows, columns = cuts(height, TILE // scale), cuts(width, TILE // scale)

    g = plait.Graph("photo_edges")
    data = g.call(read_file, image, plait.uses("disk", shared=True))
    photo = g.options(name="decode").call(decode, data)
    large = g.buffer("large", (height * scale + 2 * halo, width * scale + 2 * halo), "float32")
    for top, bottom in itertools.pairwise(cuts(large.shape[0], TILE)):
        g.options(name=f"enlarge:{top}").call(enlarge, photo, scale, halo, top, plait.write(large[top:bottom]))

    strengths, histograms = {}, []
    for at in itertools.product(itertools.pairwise(rows), itertools.pairwise(columns)):
        (top, bottom), (left, right) = at
        place = f"{top},{left}"
        shape = (bottom - top) * scale + 2 * halo, (right - left) * scale + 2 * halo
        tile = g.buffer(f"tile:{place}", shape, "float32")
        y, x = top * scale, left * scale
        g.options(name=f"cut:{place}").copy(tile, large[y : y + shape[0], x : x + shape[1]])
        scales = [
            g.options(name=f"edges:{place}:{k}").call(edges, tile, smooth, slope, halo)
            for k, (smooth, slope) in enumerate(filters)
        ]
        strengths[at] = g.options(name=f"strongest:{place}").call(strongest, scales, scale)
        histograms.append(g.options(name=f"histogram:{place}").call(histogram, strengths[at]))

    measured = g.options(name="measure").call(measure, histograms)
    drawing = g.buffer("drawing", (height, width), "uint8")
    for ((top, bottom), (left, right)), strength in strengths.items():
        drawn = g.options(name=f"draw:{top},{left}").call(draw, strength, measured)
        g.options(name=f"stitch:{top},{left}").copy(drawing[top:bottom, left:right], drawn)
    png = g.options(name="encode").call(encode, drawing)
    g.output("edges", g.call(write_file, target, png, plait.uses("disk")))
    g.output("measured", measured)
    return g


def gaussian_sobel(sigma: float) -> tuple[Pixels, Pixels]:
    """The two 1-D kernels of Sobel's filter after a Gaussian: smooth across an edge's direction, slope along it."""
    radius = round(3 * sigma)
    gaussian = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    gaussian /= gaussian.sum()
    smooth = np.convolve(gaussian, [0.25, 0.5, 0.25])
    slope = np.convolve(gaussian, [0.5, 0.0, -0.5]) * sigma  # times sigma, the scales are comparable
    return smooth.astype(np.float32), slope.astype(np.float32)


def cuts(length: int, size: int) -> list[int]:
    """Where to cut ``length`` into nearly equal parts of about ``size``, ends included."""
    parts = max(1, round(length / max(1, size)))
    return [length * part // parts for part in range(parts + 1)]


async def read_file(path: str) -> bytes:
    """The file's bytes."""
    return await trio.Path(path).read_bytes()


def decode(data: bytes) -> Pixels:
    """Brightness of every pixel, 0 to 1."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("L"), dtype=np.float32) / np.float32(255)


def enlarge(photo: Pixels, scale: int, halo: int, top: int, rows: Pixels) -> None:
    """Rows of the enlarged photo, by bilinear interpolation; its border repeats outward into the halo."""

    def sources(count: int, first: int, limit: int) -> tuple[Any, Any, Pixels]:
        at = (np.arange(first, first + count) - halo + 0.5) / scale - 0.5
        at = at.clip(0, limit - 1).astype(np.float32)
        low = at.astype(np.intp)
        return low, np.minimum(low + 1, limit - 1), at - low

    low, high, part = sources(len(rows), top, photo.shape[0])
    blended = photo[low] * (1 - part[:, None]) + photo[high] * part[:, None]
    low, high, part = sources(rows.shape[1], 0, photo.shape[1])
    np.multiply(blended[:, low], 1 - part, out=rows)
    rows += blended[:, high] * part


def along_rows(image: Pixels, kernel: Pixels) -> Pixels:
    """Convolve every row, in one long call that needs no GIL; what wraps from row to row is cut off."""
    radius = len(kernel) // 2
    return np.convolve(image.ravel(), kernel, "same").reshape(image.shape)[:, radius:-radius]


def edges(tile: Pixels, smooth: Pixels, slope: Pixels, halo: int) -> Pixels:
    """How steep the brightness is at every pixel of the tile, its halo gone."""
    spare = halo - len(smooth) // 2
    tile = tile[spare : len(tile) - spare, spare : tile.shape[1] - spare]
    across = along_rows(along_rows(tile, slope).T, smooth)
    down = along_rows(along_rows(tile, smooth).T, slope)
    across *= across
    down *= down
    across += down
    return np.sqrt(across, out=across).T


def strongest(scales: list[Pixels], scale: int) -> Pixels:
    """The strongest edge over all scales, averaged over each pixel of the photo."""
    best = np.maximum.reduce(scales)
    height, width = best.shape
    return best.reshape(height // scale, scale, width // scale, scale).mean(axis=(1, 3))


def histogram(strength: Pixels) -> npt.NDArray[np.int64]:
    """How many pixels have which strength, 0 to 1 in equal bins."""
    return np.bincount((strength.ravel() * BINS).astype(np.int64).clip(0, BINS - 1), minlength=BINS)


def measure(histograms: list[npt.NDArray[np.int64]]) -> dict[str, float]:
    """Reduce the tiles' histograms: the strength that the shown part of all pixels reaches, and the strongest."""
    counts = np.sum(histograms, axis=0)
    below = np.cumsum(counts) / counts.sum()
    return {
        "pixels": int(counts.sum()),
        "threshold": int(np.searchsorted(below, 1 - SHOWN)) / BINS,
        "strongest": (int(np.flatnonzero(counts)[-1]) + 1) / BINS,
        "mean": float((counts * (np.arange(BINS) + 0.5)).sum() / counts.sum() / BINS),
    }


def draw(strength: Pixels, measured: dict[str, float]) -> npt.NDArray[np.uint8]:
    """White from the threshold up, and a ramp to black at half of it."""
    low = measured["threshold"] / 2
    return ((strength - low) * (255 / max(low, 1 / BINS))).clip(0, 255).astype(np.uint8)


def encode(drawing: npt.NDArray[np.uint8]) -> bytes:
    """The drawing as a PNG file's bytes."""
    file = io.BytesIO()
    Image.fromarray(drawing).save(file, "PNG")
    return file.getvalue()


async def write_file(path: str, data: bytes) -> str:
    """Write, in a folder made for it; gives the path."""
    target = trio.Path(path)
    await target.parent.mkdir(parents=True, exist_ok=True)
    await target.write_bytes(data)
    return path
