"""Why there is no GPU platform, in one line, and what to install or free."""

from __future__ import annotations

import os
import re
import shutil
from importlib import metadata
from pathlib import Path

from plait.devices.gpu import driver, probe

_ROOT = Path("/")
_EXTRAS = {"cuda": "plait[cuda12] or plait[cuda13]", "hip": "plait[rocm]"}
_MAKERS = {"cuda": "NVIDIA", "hip": "AMD"}
_WHEELS = {"cuda": "cupy-cuda", "hip": "cupy-rocm"}
_VISIBILITY = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hip": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
_HOLDERS = {"cuda": "nvidia-smi lists them, nvidia-smi -q -d COMPUTE the mode", "hip": "rocm-smi --showpids lists them"}

# The runtime's codes, where they say more than their text.
_OUT_OF_MEMORY, _INITIALIZATION, _OLD_DRIVER, _NO_DEVICE = 2, 3, 35, 100
_HELD = frozenset({46, 101, 216})
_NOT_READY, _MISMATCH = 802, 803

# The first NVIDIA drivers that serve all of CUDA 13 and all of CUDA 12.
_CUDA13_RELEASE, _CUDA12_RELEASE = 580, 525
_LONGEST = 250


def absent_reason(platform: str, root: Path = _ROOT) -> str | None:
    """Why ``"cuda"`` or ``"hip"`` has no device here, None if it has one; never raises.

    It imports CuPy if that is installed, and makes a context on the first device that lets it.
    """
    try:
        return _wheel_reason(platform, root) or _device_reason(platform, root)
    except Exception as error:  # whatever CuPy and the driver may raise costs the platform, never the caller
        return _one_line(f"{type(error).__name__}: {error}")


def _wheel_reason(platform: str, root: Path) -> str | None:
    """What is wrong with CuPy itself."""
    wheels = installed_wheels()
    kinds = {kind: [wheel for wheel in wheels if wheel.startswith(start)] for kind, start in _WHEELS.items()}
    if all(kinds.values()):
        both = " and ".join(kinds["cuda"] + kinds["hip"])
        return f"{both} overwrite each other's files: remove all of them with pip uninstall, then install the right one"
    other = "hip" if platform == "cuda" else "cuda"
    if kinds[other]:
        return _for_other(platform, kinds[other][0])
    try:
        driver.cupy()
    except ImportError as error:
        if not wheels and isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            return _not_installed(platform, root)
        shown = ", ".join(wheels) or "CuPy"
        needs = "ROCm's libraries of that version" if platform == "hip" else "CUDA's libraries of that version"
        return f"{shown} is installed but does not load: {_original(error)}; it needs {needs} in the loader's path"
    return None if driver.platform_name() == platform else _for_other(platform, ", ".join(wheels) or "CuPy")


def _device_reason(platform: str, root: Path) -> str | None:
    """What is wrong with the driver or with every device."""
    runtime = driver.runtime()
    try:
        count = runtime.getDeviceCount()
    except RuntimeError as error:
        return _explained(platform, root, error, "the driver does not start")
    reasons = []
    for ordinal in range(count):
        try:
            with probe.current(ordinal):
                runtime.free(0)  # the least that makes a context
            return None
        except RuntimeError as error:
            reasons.append(_explained(platform, root, error, f"{platform}:{ordinal} does not answer"))
    return "; ".join(dict.fromkeys(reasons)) if reasons else _none_visible(platform, root)


def installed_wheels() -> list[str]:
    """The distributions of CuPy that are installed, sorted; more than one share their files."""
    names = {str(found.metadata["Name"]).lower().replace("_", "-") for found in metadata.distributions()}
    return sorted(name for name in names if name == "cupy" or name.startswith(tuple(_WHEELS.values())))


def _for_other(platform: str, wheel: str) -> str:
    built, wanted = ("HIP", "CUDA") if platform == "cuda" else ("CUDA", "HIP")
    return f"{wheel} is built for {built}; for {wanted}, {_EXTRAS[platform]} goes into an environment of its own"


def _not_installed(platform: str, root: Path) -> str:
    release = _driver_release(platform, root)
    if release is None:
        return (
            f"CuPy is not installed, nor is an {_MAKERS[platform]} driver seen; with one, install {_EXTRAS[platform]}"
        )
    if platform == "hip" or not release:
        return f"CuPy is not installed: an {_MAKERS[platform]} driver is here, so install {_EXTRAS[platform]}"
    major = int(release.partition(".")[0])
    if major < _CUDA12_RELEASE:
        return (
            f"CuPy is not installed, and the NVIDIA driver {release} is too old: update it, then install plait[cuda12]"
        )
    fitting = _EXTRAS["cuda"] if major >= _CUDA13_RELEASE else "plait[cuda12]"
    return f"CuPy is not installed: the NVIDIA driver {release} is here, so install {fitting}"


def _driver_release(platform: str, root: Path) -> str | None:
    """The kernel driver's version, empty if there is one of unknown version, None if none is seen."""
    if platform == "hip":
        return "" if (root / "dev/kfd").exists() else None
    try:
        text = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "" if shutil.which("nvidia-smi") else None
    found = re.search(r"\b(\d+\.[\d.]+)", text)
    return found[1] if found else ""


def _explained(platform: str, root: Path, error: RuntimeError, what: str) -> str:
    status = getattr(error, "status", None)
    if status == _OLD_DRIVER:
        return _old_driver(platform)
    if status == _NO_DEVICE:
        return _none_visible(platform, root)
    if status in _HELD:
        return f"{what}: another process holds it, or its mode forbids use; end that process ({_HOLDERS[platform]})"
    if status == _OUT_OF_MEMORY:
        return f"{what}: its memory is full; end a process that holds it ({_HOLDERS[platform]})"
    if status == _INITIALIZATION:
        return (
            f"{what}: {_one_line(str(error))}; a process forked after the driver was used cannot use it: spawn instead"
        )
    if status == _NOT_READY:
        return f"{what}: {_one_line(str(error))}; is nvidia-fabricmanager running?"
    if status == _MISMATCH:
        return f"{what}: the driver's module and library differ, as after an update: reboot, or load the module again"
    return f"{what}: {_one_line(str(error))}"


def _old_driver(platform: str) -> str:
    runtime = driver.runtime()
    serves, needs = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if not serves:
        return (
            f"no {_MAKERS[platform]} driver is seen: install one, "
            "or give this container the device (docker run --gpus all)"
        )
    older = ", or install plait[cuda12] instead" if serves // 1000 == 12 and needs // 1000 > 12 else ""
    shown = [probe.version_text(platform, number) for number in (serves, needs)]
    return f"the driver serves {shown[0]} at most and CuPy needs {shown[1]}: update the driver{older}"


def _none_visible(platform: str, root: Path) -> str:
    hiding = [f"{name}={os.environ[name]!r}" for name in _VISIBILITY[platform] if name in os.environ]
    if hiding:
        return f"no device is visible: {', '.join(hiding)} hides those that it does not list"
    kfd = root / "dev/kfd"
    if platform == "hip" and kfd.exists() and not os.access(kfd, os.R_OK | os.W_OK):
        return "no device is visible: /dev/kfd may not be opened; add the user to the groups render and video"
    if platform == "hip" and not kfd.exists():
        return "no device is visible: there is no /dev/kfd, so load amdgpu, or give this container the device"
    return f"no device is visible to the {_MAKERS[platform]} driver"


def _original(error: ImportError) -> str:
    """The loader's own words, without CuPy's advice around them."""
    text = str(error)
    return _one_line(text.partition("Original error:")[2] or text)


def _one_line(text: str) -> str:
    line = " ".join(re.sub(r"={4,}", " ", text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
