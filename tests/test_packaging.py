"""The wheel holds everything that the folders do, imports from an empty place, and imports nothing it need not."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = {"cupy", "dask", "matplotlib", "IPython", "scipy", "PIL", "threadpoolctl", "pytest"}
OPTIONAL |= {"pandas", "opentelemetry", "prometheus_client"}
FOLDERS = {"api": "plait", "graph": "plait.graph", "devices": "plait.devices", "scheduler": "plait.scheduler"}


def modules() -> list[str]:
    """Every module in the four folders, by the name it is imported under."""
    found = []
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            found.append(".".join((package, *(part for part in inner if part != "__init__"))))
    return sorted(found)


def clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, so that nothing is left in the checkout."""
    pytest.importorskip("build", reason="needs the package 'build', part of the extra 'dev'")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        _copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, cwd=source)
    (found,) = target.glob("*.whl")
    return found


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                _copy(path, target / path.relative_to(source))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


def test_the_wheel_holds_every_module_and_the_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "plait/devices/sim/machines/8xh100.json" in names
    for module in modules():
        path = module.replace(".", "/")
        assert f"{path}.py" in names or f"{path}/__init__.py" in names, (
            f"{module} is missing: name it in pyproject.toml"
        )
    assert "plait/py.typed" in names
    assert {"plait/graph/drawing/view.css", "plait/graph/drawing/view.js"} <= names
    assert all(name.startswith(("plait/", "plait-")) for name in names)


def test_every_module_imports_from_an_empty_place_with_the_bare_dependencies(wheel: Path, tmp_path: Path) -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, capture_output=True)
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    clean = clean_environment()
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel, *dependencies]
    installed = subprocess.run(install, check=False, capture_output=True, text=True, env=clean, cwd=empty)
    assert installed.returncode == 0, installed.stderr
    # pytest is what the plugin and the conformance suite stand on, and is not among the dependencies.
    needs_pytest = ("plait.pytest_plugin", "plait.testing.conformance")
    names = [name for name in modules() if not name.startswith(needs_pytest)]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    command = [python, "-c", code]
    imported = subprocess.run(command, check=False, capture_output=True, text=True, env=clean, cwd=empty)
    assert imported.returncode == 0, imported.stderr


def test_import_plait_imports_nothing_optional() -> None:
    code = "import plait, sys; plait.Graph, plait.run, plait.open_scheduler; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not OPTIONAL & {name.partition(".")[0] for name in result.stdout.split()}


def test_the_version_is_the_distributions() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    code = "import plait; print(plait.__version__, '__version__' in dir(plait))"
    for command in (["-c", code], ["-m", "plait", "--version"]):
        done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
        assert stated in done.stdout.split()
        assert "False" not in done.stdout


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "plait", "run", "--help"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("usage: plait run")
