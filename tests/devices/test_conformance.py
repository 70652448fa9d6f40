"""The conformance suite, itself tested: the host passes, each broken platform fails the test meant for it."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import broken_platform
import pytest
from plait import pytest_plugin as plugin
from plait.devices.host import HOST, HostDevice, HostPlatform
from plait.testing import conformance_kit

# These look from another side at what another test catches.
SECOND_LOOKS = {
    "test_a_gate_that_fails_fails_the_stream",
    "test_copy_there_and_back",
    "test_elapsed_between_streams",
    "test_many_tasks_await_one_event",
    "test_order_is_kept_however_operations_arrive",
    "test_wait_for_a_stream_in_a_ring_of_moments",
    "test_wait_for_its_own_event_changes_nothing",
    "test_wait_for_many_raises_once_all_are_settled",
    "test_wait_takes_many_events_and_streams",
}

HERE = Path(__file__).parent

SUITE = {
    name: test
    for file in plugin.SUITE
    for name, test in vars(importlib.import_module(f"plait.testing.{Path(file).stem}")).items()
    if name.startswith("test_")
}


@pytest.mark.parametrize("name", SUITE)
def test_the_host_passes(name: str) -> None:
    SUITE[name](HOST)


@pytest.mark.parametrize("name", SUITE)
def test_one_worker_is_enough(name: str) -> None:
    SUITE[name](HostPlatform(HostDevice(compute_workers=1, copy_workers=1)))


@pytest.mark.parametrize("mutation", broken_platform.MUTATIONS)
def test_a_broken_platform_is_caught(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_kit, "TIMEOUT_S", broken_platform.PATIENCE_S)
    test, build = broken_platform.MUTATIONS[mutation]

    def tries() -> None:
        """On a loaded machine threads may happen to run in the right order; not five times in a row."""
        for _ in range(5):
            SUITE[test](build())

    with pytest.raises(BaseException) as caught:
        tries()
    assert not isinstance(caught.value, AttributeError | TypeError | NameError | KeyboardInterrupt), (
        "the broken platform is broken in another way than it means to be"
    )


def test_every_test_catches_something() -> None:
    assert set(SUITE) - {test for test, _ in broken_platform.MUTATIONS.values()} == SECOND_LOOKS


def test_every_test_takes_a_platform_and_nothing_else() -> None:
    for name, test in SUITE.items():
        assert list(inspect.signature(test).parameters) == ["platform"], name


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_plugin_runs_the_suite_alone(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("def test_mine(): raise SystemExit\n")
    done = run_pytest(tmp_path, "--plait-platform=host")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SUITE)} passed" in done.stdout


def test_the_plugin_runs_the_suite_beside_given_paths(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("def test_mine(): pass\n")
    done = run_pytest(tmp_path, "--plait-platform=Host", "test_mine.py")
    assert f"{len(SUITE) + 1} passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_takes_a_factory_and_names_what_fails(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--plait-platform=broken_platform:broken")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_a_block_is_freed_once_and_where_it_came_from" in done.stdout
    assert "DID NOT RAISE" in done.stdout, "assertions of the suite explain themselves"


def test_the_plugin_skips_with_the_reason_that_a_platform_states(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from plait.devices.host import HostPlatform\n"
        "class Mine(HostPlatform):\n"
        "    exempt = {'test_zero_bytes_are_legal': 'its driver has no empty blocks'}\n"
    )
    done = run_pytest(tmp_path, "--plait-platform=mine:Mine", "-rs", "-p", "pytester", "--rootdir=.")
    assert "1 skipped" in done.stdout, done.stdout + done.stderr
    assert "its driver has no empty blocks" in done.stdout


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nope", "no platform 'nope', known are: host"),
        ("nope:thing", "No module named 'nope'"),
        ("math:pi", "math:pi"),
        ("mimetypes:init", "no plait Platform"),
    ],
)
def test_the_plugin_refuses_what_is_no_platform(tmp_path: Path, name: str, words: str) -> None:
    done = run_pytest(tmp_path, f"--plait-platform={name}")
    assert done.returncode == 4, done.stdout + done.stderr
    assert words in done.stderr


def test_the_plugin_imports_nothing_by_itself(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "def test_mine():\n"
        "    assert 'plait.pytest_plugin' in sys.modules\n"
        "    assert not {'plait.devices', 'plait.testing.conformance_kit'} & set(sys.modules)\n"
    )
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
