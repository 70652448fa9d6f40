"""Why there is no GPU: each cause is told in one line that names what to install or free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_gpu import FakeRuntime, use
from plait.devices.gpu import absent, driver
from plait.devices.gpu.absent import absent_reason, installed_wheels

VISIBILITY = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

CUPYS_WORDS = """
================================================================
Failed to import CuPy.

If you installed CuPy via wheels, make sure that the package matches.

Original error:
  ImportError: libsome.so.7: cannot open shared object file
================================================================
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No tools of a driver on the path, no variable that hides devices."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in VISIBILITY:
        monkeypatch.delenv(name, raising=False)


def installed(monkeypatch: pytest.MonkeyPatch, *wheels: str, error: BaseException | None = None) -> None:
    """These wheels of CuPy are installed, and importing gives the error."""

    def cupy() -> Any:
        if error is not None:
            raise error
        return object()

    monkeypatch.setattr(absent, "installed_wheels", lambda: list(wheels))
    monkeypatch.setattr(driver, "cupy", cupy)


def with_runtime(monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime, platform: str = "cuda") -> None:
    installed(monkeypatch, "cupy-cuda12x" if platform == "cuda" else "cupy-rocm-7-0")
    use(monkeypatch, runtime, platform)


def told(platform: str, root: Path) -> str:
    reason = absent_reason(platform, root)
    assert reason is not None
    assert "\n" not in reason
    assert len(reason) < 400
    return reason


def test_a_device_that_answers_is_not_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runtime = FakeRuntime({}, devices=2)
    runtime.current = 1
    with_runtime(monkeypatch, runtime)
    assert absent_reason("cuda", tmp_path) is None
    assert runtime.current == 1
    assert "cupy-cuda12x is built for CUDA; for HIP, plait[rocm]" in told("hip", tmp_path)


@pytest.mark.parametrize(
    ("platform", "release", "words"),
    [
        ("cuda", None, "nor is an NVIDIA driver seen; with one, install plait[cuda12] or plait[cuda13]"),
        ("cuda", "470.1", "the NVIDIA driver 470.1 is too old"),
        ("cuda", "570.86.15", "the NVIDIA driver 570.86.15 is here, so install plait[cuda12]"),
        ("cuda", "580.10", "the NVIDIA driver 580.10 is here, so install plait[cuda12] or plait[cuda13]"),
        ("cuda", "", "an NVIDIA driver is here, so install plait[cuda12] or plait[cuda13]"),
        ("hip", None, "nor is an AMD driver seen; with one, install plait[rocm]"),
        ("hip", "", "an AMD driver is here, so install plait[rocm]"),
    ],
)
def test_without_cupy_the_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, release: str | None, words: str
) -> None:
    installed(monkeypatch, error=ModuleNotFoundError("No module named 'cupy'", name="cupy"))
    if release is not None:
        file = tmp_path / ("dev/kfd" if platform == "hip" else "proc/driver/nvidia/version")
        file.parent.mkdir(parents=True)
        file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {release}  Mon Jan\nGCC version: 12.2.0\n")
        if not release:
            file.write_text("nonsense\n")
    reason = told(platform, tmp_path)
    assert reason.startswith("CuPy is not installed")
    assert reason.endswith(words) or words in reason


def test_the_drivers_tool_is_a_driver_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, error=ModuleNotFoundError("No module named 'cupy'", name="cupy"))
    tool = tmp_path / "nvidia-smi"
    tool.write_text("")
    tool.chmod(0o755)
    assert "an NVIDIA driver is here" in told("cuda", tmp_path)


def test_two_builds_in_one_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, "cupy-cuda12x", "cupy-rocm-7-0")
    for platform in ("cuda", "hip"):
        assert "cupy-cuda12x and cupy-rocm-7-0 overwrite each other's files" in told(platform, tmp_path)


def test_libraries_that_do_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, "cupy-rocm-7-0", error=ImportError(CUPYS_WORDS))
    assert told("hip", tmp_path) == (
        "cupy-rocm-7-0 is installed but does not load: ImportError: libsome.so.7: cannot open shared object file; "
        "it needs ROCm's libraries of that version in the loader's path"
    )
    installed(monkeypatch, error=ImportError("word " * 1000))
    assert "CuPy is installed but does not load: word word" in told("cuda", tmp_path)


def test_a_cupy_built_from_source_for_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, "cupy")
    use(monkeypatch, FakeRuntime({}), "hip")
    assert told("cuda", tmp_path).startswith("cupy is built for HIP; for CUDA")


def test_whatever_an_import_raises_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, "cupy-cuda12x", error=ValueError("two\nlines"))
    assert told("cuda", tmp_path) == "ValueError: two lines"


@pytest.mark.parametrize(
    ("serves", "needs", "words"),
    [
        (0, 12090, "no NVIDIA driver is seen: install one"),
        (11040, 12090, "the driver serves 11.4 at most and CuPy needs 12.9: update the driver"),
        (12080, 13000, "update the driver, or install plait[cuda12] instead"),
    ],
)
def test_no_driver_or_an_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, serves: int, needs: int, words: str
) -> None:
    runtime = FakeRuntime({}, getDeviceCount=35)
    runtime.versions = (serves, needs)
    with_runtime(monkeypatch, runtime)
    assert words in told("cuda", tmp_path)


@pytest.mark.parametrize("runtime", [FakeRuntime({}, devices=0), FakeRuntime({}, getDeviceCount=100)])
def test_no_device_is_visible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: FakeRuntime) -> None:
    with_runtime(monkeypatch, runtime)
    assert told("cuda", tmp_path) == "no device is visible to the NVIDIA driver"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES='' hides" in told("cuda", tmp_path)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3")
    with_runtime(monkeypatch, runtime, "hip")
    assert "ROCR_VISIBLE_DEVICES='3', CUDA_VISIBLE_DEVICES='' hides" in told("hip", tmp_path)


def test_amds_device_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_runtime(monkeypatch, FakeRuntime({}, devices=0), "hip")
    assert "there is no /dev/kfd" in told("hip", tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert told("hip", tmp_path) == "no device is visible to the AMD driver"
    monkeypatch.setattr("os.access", lambda *args: False)
    assert "add the user to the groups render and video" in told("hip", tmp_path)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (46, "another process holds it, or its mode forbids use; end that process (nvidia-smi lists them"),
        (101, "another process holds it"),
        (2, "its memory is full; end a process that holds it"),
        (3, "spawn instead"),
        (100, "no device is visible"),
        (802, "is nvidia-fabricmanager running?"),
        (803, "reboot, or load the module again"),
        (719, "some words"),
    ],
)
def test_a_device_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, words: str
) -> None:
    with_runtime(monkeypatch, FakeRuntime({}, free=status))
    assert words in told("cuda", tmp_path)
    with_runtime(monkeypatch, FakeRuntime({}, devices=2, setDevice=status))
    assert absent_reason("cuda", tmp_path) is None, "the first device answers"


def test_every_device_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_runtime(monkeypatch, FakeRuntime({}, devices=2, free=719))
    assert told("cuda", tmp_path) == "cuda:0 does not answer: some words; cuda:1 does not answer: some words"


def test_the_wheels_that_are_installed_are_cupys() -> None:
    assert all(name == "cupy" or name.startswith(("cupy-cuda", "cupy-rocm")) for name in installed_wheels())
