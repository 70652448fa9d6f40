"""The check of CuPy's names, on a small sample and a small CuPy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]

SAMPLE = """from plait.devices.gpu import driver
from plait.devices.gpu.driver import cupy, runtime


def direct():
    cupy().cuda.Stream(non_blocking=True).missing
    return driver.runtime().streamQuery(0), driver.cupy().nothing


def aliases(rt):
    rt.anything
    cp = cupy()
    cuda, other = cp.cuda, 3
    query = cuda.runtime.streamQuery
    wrong = cuda.runtime.streamquery
    other.missing, query.missing_from_a_function
    if (late := cp.ndarray) is not None:
        late.nothing
    return lambda: cuda.Evnt


def shadowed():
    runtime = object()
    return runtime.missing


class Held:
    def __init__(self):
        self._runtime = None
        self.free = None

    def open(self):
        self._runtime = runtime()

    def use(self):
        return self._runtime.eventQuery, self.free.missing


def guarded():
    getattr(runtime(), "absent", None)
    getattr(runtime(), "absent")
    hasattr(runtime(), "absent")
    runtime().mallocAsync  # only on cuda: there is no such call
    runtime().hipMalloc  # only on hip
    (
        runtime()
        .split
        .over_lines
    )
"""


@pytest.fixture
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_cupy_names", ROOT / "scripts/check_cupy_names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for the module of their class
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small_cupy(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    runtime = SimpleNamespace(is_hip=False, streamQuery=print, mallocAsync=print)
    cuda = SimpleNamespace(runtime=runtime, Stream=print)
    module = SimpleNamespace(__version__="1.2", cuda=cuda, ndarray=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_each_missing_name_is_told_with_its_line(
    checker: ModuleType, small_cupy: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sample.py"
    file.write_text(SAMPLE)

    def lacking() -> list[tuple[int, str]]:
        assert checker.main([str(file)]) == 1
        lines = capsys.readouterr().out.splitlines()[:-1]
        return [(int(line.split(":")[1]), line.rpartition(" ")[2]) for line in lines]

    on_both = [
        (7, "cupy.nothing"),
        (15, "cupy.cuda.runtime.streamquery"),
        (16, "cupy.cuda.runtime.streamQuery.missing_from_a_function"),
        (18, "cupy.ndarray.nothing"),
        (19, "cupy.cuda.Evnt"),
        (36, "cupy.cuda.runtime.eventQuery"),
        (41, "cupy.cuda.runtime.absent"),
        (48, "cupy.cuda.runtime.split"),
    ]
    assert lacking() == on_both
    del small_cupy.cuda.runtime.mallocAsync
    assert lacking() == [*on_both[:-1], (43, "cupy.cuda.runtime.mallocAsync"), on_both[-1]]
    small_cupy.cuda.runtime.is_hip = True
    assert lacking() == [*on_both[:-1], (44, "cupy.cuda.runtime.hipMalloc"), on_both[-1]]


def test_nothing_missing_is_status_0(
    checker: ModuleType, small_cupy: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sample.py"
    file.write_text("from plait.devices.gpu import driver\ndriver.runtime().streamQuery(driver.cupy().ndarray)\n")
    assert checker.main([str(file)]) == 0
    assert capsys.readouterr().out == "2 uses of 2 names in 1 files, 0 not in CuPy 1.2 for cuda\n"


def test_the_files_of_the_platform_use_cupy(checker: ModuleType) -> None:
    found = {use.chain for file in (ROOT / "devices/gpu").glob("*.py") for use in checker.uses(file)}
    assert ("cuda", "runtime", "getDeviceProperties") in found
