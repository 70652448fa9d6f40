"""The bound on BLAS threads: nests, restores exactly, finds late libraries, does without the extra."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest
from plait.devices.host import blas


class FakeLibrary:
    """What threadpoolctl calls a library controller."""

    def __init__(self, filepath: str, threads: int | None) -> None:
        self.filepath = filepath
        self.threads = threads
        self.settings = 0

    def get_num_threads(self) -> int | None:
        return self.threads

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads
        self.settings += 1


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> list[FakeLibrary]:
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="the optional extra plait[blas]")
    found = [FakeLibrary("openblas.so", 8), FakeLibrary("small.so", 2), FakeLibrary("odd.so", None)]

    class Controller:
        def __init__(self) -> None:
            self.lib_controllers = list(found)

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Controller)
    monkeypatch.setattr(blas, "_bound", blas._Bound())
    return found


def threads(libraries: list[FakeLibrary]) -> list[int | None]:
    return [library.threads for library in libraries]


def test_the_tightest_bound_holds_and_all_is_restored(libraries: list[FakeLibrary]) -> None:
    with blas.bounded_blas(4):
        assert threads(libraries) == [4, 2, None]
        with blas.bounded_blas(1):
            assert threads(libraries) == [1, 1, None]
            with blas.bounded_blas(3):
                assert threads(libraries) == [1, 1, None]
        assert threads(libraries) == [4, 2, None]
    assert threads(libraries) == [8, 2, None]


def test_bounds_may_end_in_any_order(libraries: list[FakeLibrary]) -> None:
    wide, tight = blas.bounded_blas(4), blas.bounded_blas(1)
    wide.__enter__()
    tight.__enter__()
    wide.__exit__(None, None, None)
    assert threads(libraries) == [1, 1, None]
    tight.__exit__(None, None, None)
    assert threads(libraries) == [8, 2, None]


def test_what_was_is_asked_anew_each_time(libraries: list[FakeLibrary]) -> None:
    with blas.bounded_blas(1):
        pass
    libraries[0].threads = 5
    with blas.bounded_blas(1):
        pass
    assert threads(libraries) == [5, 2, None]


def test_a_library_that_is_loaded_later_is_found(libraries: list[FakeLibrary], monkeypatch: pytest.MonkeyPatch) -> None:
    with blas.bounded_blas(1):
        libraries.append(FakeLibrary("late.so", 16))
        monkeypatch.setitem(sys.modules, "a_module_that_loads_late_so", sys)
        with blas.bounded_blas(1):
            assert threads(libraries) == [1, 1, None, 1]
    assert threads(libraries) == [8, 2, None, 16]


def test_entering_again_under_the_same_bound_sets_nothing(libraries: list[FakeLibrary]) -> None:
    with blas.bounded_blas(1):
        settings = libraries[0].settings
        for _ in range(100):
            with blas.bounded_blas(1):
                pass
        assert libraries[0].settings == settings


def test_many_threads_enter_and_leave(libraries: list[FakeLibrary]) -> None:
    start = threading.Barrier(8)

    def work(bound: int) -> None:
        start.wait(30)
        for _ in range(200):
            with blas.bounded_blas(bound):
                assert libraries[0].threads is not None
                assert libraries[0].threads <= bound

    failures: list[object] = []
    old, threading.excepthook = threading.excepthook, failures.append
    try:
        workers = [threading.Thread(target=work, args=(1 + number % 4,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        threading.excepthook = old
    assert not failures
    assert threads(libraries) == [8, 2, None]


def test_the_real_libraries_are_bounded_and_restored() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="the optional extra plait[blas]")
    before = threadpoolctl.threadpool_info()
    with blas.bounded_blas(1):
        assert all(library["num_threads"] == 1 for library in threadpoolctl.threadpool_info())
    assert threadpoolctl.threadpool_info() == before


def test_without_threadpoolctl_nothing_happens_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    monkeypatch.setattr(blas, "_bound", blas._Bound())
    with caplog.at_level(logging.INFO, "plait.devices.host"):
        for _ in range(3):
            with blas.bounded_blas(1):
                pass
    assert len(caplog.records) == 1
    assert "plait[blas]" in caplog.text


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"), blas.bounded_blas(0):
        pass


def test_threadpoolctl_is_imported_only_when_needed() -> None:
    code = "import plait.devices, sys; raise SystemExit('threadpoolctl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
