"""The examples do what they say: on small input, as a user runs them and as a program imports them."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import plait
import pytest
from PIL import Image
from scipy import linalg, ndimage

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def plait_run(*arguments: str | Path, cwd: Path) -> str:
    code = "import sys; from plait.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "run", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- photo --------------------------------------------------------------------------------------------------------


@pytest.fixture
def square(tmp_path: Path) -> Path:
    """A photo of a white square on black."""
    pixels = np.zeros((90, 120), np.uint8)
    pixels[30:60, 40:80] = 255
    path = tmp_path / "square.png"
    Image.fromarray(pixels).save(path)
    return path


def test_photo_edges_stand_where_the_square_ends(square: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = load("photo_edges")
    graph = example["graph"]
    monkeypatch.setitem(graph.__globals__, "WORKING_PIXELS", 4 * 90 * 120)
    monkeypatch.setitem(graph.__globals__, "TILE", 64)
    target = square.with_name("edges.png")
    outputs = plait.run(graph(str(square), str(target)))
    drawn = np.asarray(Image.open(target))
    assert outputs["edges"] == str(target)
    assert drawn.shape == (90, 120)
    assert outputs["measured"]["pixels"] == drawn.size
    assert drawn[30, 60] == drawn[59, 60] == drawn[45, 40] == drawn[45, 79] == 255
    assert drawn[45, 60] == drawn[5, 5] == drawn[85, 115] == 0


def test_photo_tiles_make_no_seams(square: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load("photo_edges")["graph"]
    drawn = []
    for tile in (32, 1000):
        monkeypatch.setitem(graph.__globals__, "WORKING_PIXELS", 4 * 90 * 120)
        monkeypatch.setitem(graph.__globals__, "TILE", tile)
        target = square.with_name(f"{tile}.png")
        plait.run(graph(str(square), str(target)))
        drawn.append(np.asarray(Image.open(target)).astype(int))
    assert np.abs(drawn[0] - drawn[1]).max() <= 1


def test_photo_filter_is_sobels_after_a_gaussian() -> None:
    example = load("photo_edges")
    image = np.random.default_rng(0).random((60, 70)).astype(np.float32)
    sigma, halo = 2.0, 12
    smooth, slope = example["gaussian_sobel"](sigma)
    found = example["edges"](image, smooth, slope, halo)
    blurred = ndimage.gaussian_filter(image.astype(float), sigma, radius=6)
    expected = np.hypot(ndimage.sobel(blurred, 0), ndimage.sobel(blurred, 1)) / 8 * sigma
    np.testing.assert_allclose(found, expected[halo:-halo, halo:-halo], atol=1e-5)


def test_photo_from_the_command_line(square: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.json"
    shown = plait_run(EXAMPLES / "photo_edges.py", "--input", f"image={square}", "--trace", trace, cwd=tmp_path)
    assert "critical path" in shown
    assert "output edges: out/square.edges.png" in shown
    assert (tmp_path / "out" / "square.edges.png").is_file()
    assert trace.is_file()


def test_photo_names_a_photo_that_is_there() -> None:
    pytest.importorskip("sklearn", reason="ships the photo; part of the extra 'examples'")
    assert Path(load("photo")["china"]()).is_file()


# ---- Cholesky -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "tile"), [(1, 4), (8, 8), (30, 7), (64, 16), (100, 33)])
def test_cholesky_agrees_with_scipy(n: int, tile: int) -> None:
    example = load("cholesky")
    a = example["example_matrix"](n)
    before = a.copy()
    lower = plait.run(example["tiled_cholesky"](n, tile), a=a)["l"]
    np.testing.assert_allclose(lower, linalg.cholesky(a, lower=True), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(a, before)


def test_cholesky_says_that_a_matrix_has_no_factor() -> None:
    example = load("cholesky")
    with pytest.raises(plait.RunFailed) as failed:
        plait.run(example["tiled_cholesky"](8, 4), a=-np.eye(8))
    error = failed.value.exceptions[0]
    assert error.item == "factor:0"
    assert "not positive definite" in str(error.__cause__)


def test_cholesky_from_the_command_line(tmp_path: Path) -> None:
    script = EXAMPLES / "cholesky.py"
    subprocess.run([sys.executable, script, "matrix.npy", "300"], check=True, cwd=tmp_path)
    shown = plait_run(script, "--input", "a=matrix.npy", "--input", "tile=64", cwd=tmp_path)
    (line,) = (line for line in shown.splitlines() if "difference from SciPy" in line)
    assert float(line.rpartition(" ")[2]) < 1e-12


# ---- networkx -----------------------------------------------------------------------------------------------------


def test_networkx_dag_runs_unchanged(tmp_path: Path) -> None:
    source = EXAMPLES / "networkx_plain.py"
    assert "import plait" not in source.read_text(encoding="utf-8")
    expected = {"sentence": "longest word: 'quick'; most frequent: 'the'"}
    assert plait.run(load("networkx_plain")["dag"]) == expected
    assert expected["sentence"] in plait_run(source, cwd=tmp_path)


# ---- out of core --------------------------------------------------------------------------------------------------


def test_out_of_core_multiplies_files_in_less_memory_than_they_take(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    a, b = random.random((500, 430)), random.random((430, 390))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    command = [
        sys.executable,
        str(EXAMPLES / "out_of_core.py"),
        "a.npy",
        "b.npy",
        "c.npy",
        "--memory",
        "1",
        "--tile",
        "64",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), a @ b)
    assert "4 MiB of matrices, 1 MiB allowed, 1 MiB held at most" in done.stdout
    assert "moved to make room: 0 MiB out" not in done.stdout
