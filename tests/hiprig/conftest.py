"""The rig stands before any module of this folder is imported; without the CuPy ROCm wheel the folder is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hiprig import rig
from hiprig.build import wheel

REASON = (
    "needs the CuPy ROCm wheel and g++, in an environment without another CuPy: "
    "pip install -e '.[test]' cupy-rocm-7-0 && python -m pytest tests/hiprig"
)
HERE = Path(__file__).resolve().parent


class SkippedModule(pytest.Module):
    """A test module that is not even imported, since its imports need CuPy."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        pytest.skip(REASON, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if wheel() is None:
        return SkippedModule.from_parent(parent, path=module_path)
    rig.enter(devices=2)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.rig)


@pytest.fixture(autouse=True)
def whole_rig() -> Iterator[None]:
    """Every test finds the rig, and leaves it, as it was built: nothing held, failing, slowed or traced."""
    yield
    rig.reset()
