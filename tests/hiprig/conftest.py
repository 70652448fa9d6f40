"""Tests here run on the rig, where CuPy's ROCm wheel is installed; elsewhere they are skipped."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import rig

HERE = Path(__file__).resolve().parent
WHEEL = "cupy-rocm-7-0"


def _absent() -> str | None:
    """Why these tests cannot run here, and how they do."""
    try:
        importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return f"needs the rig: pip install {WHEEL} in an environment of its own, then python -m pytest tests/hiprig"
    if "cupy" in sys.modules and not rig.is_entered():
        return "needs the rig, but CuPy was imported without it: python -m pytest tests/hiprig, by itself"
    return None


ABSENT = _absent()
if ABSENT is None:
    rig.enter()


class SkippedModule(pytest.Module):
    """A test module that is not imported, since it would import CuPy."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip(str(ABSENT), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return None if ABSENT is None else SkippedModule.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.rig)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Nothing stays held, failed or slow after a test."""
    yield
    rig.restore()
