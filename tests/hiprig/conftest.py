"""Tests here run on the rig, where CuPy's ROCm wheel is installed; elsewhere they are skipped."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import rig

WHEEL = "cupy-rocm-7-0"


def _absent() -> str | None:
    try:
        importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return f"needs the rig: pip install {WHEEL} in an environment of its own, then python -m pytest tests/hiprig"
    return None


if _absent() is None:
    rig.enter()
    collect_ignore_glob: list[str] = []
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def _restored():
    """Nothing stays held or failed after a test."""
    yield
    rig.restore()
