"""What Linux's /sys says of a GPU: its PCIe link, its NUMA node, and which kernel modules are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plait.devices.host.probe import numa_node_of

SYS = Path("/sys")

# Gigatransfers per second of a lane, by PCIe generation from 1 on.
_SPEEDS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)
# Modules that hand a GPU's memory to network cards, and where the kernel lists who can.
_RDMA = {"cuda": ("module/nvidia_peermem", "module/nv_peer_mem"), "hip": ("kernel/mm/memory_peers/amdkfd",)}
_DRIVERS = {"cuda": "nvidia", "hip": "amdgpu"}


def pci_link(sysfs: Path, address: str) -> tuple[int | None, int | None]:
    """Generation and lanes that the path to the device can have: its own link's, and no more than any link above.

    The greatest speed counts, since an idle link slows down; of the lanes those that are in use.
    """
    speeds, widths = [], []
    for folder in _path_to(sysfs, address):
        speeds.append(_generation(folder / "max_link_speed"))
        widths.append(_number(folder / "current_link_width") or _number(folder / "max_link_width"))
    return min(filter(None, speeds), default=None), min(filter(None, widths), default=None)


def numa_node(sysfs: Path, address: str) -> int | None:
    """The NUMA node near the device; no affinity counts as 0, unreadable is unknown."""
    return numa_node_of(_device(sysfs, address) / "numa_node")


def unique_id(sysfs: Path, address: str) -> str | None:
    """The serial that an AMD device carries, in the form in which HIP writes it."""
    text = _text(_device(sysfs, address) / "unique_id")
    return f"GPU-{text.removeprefix('0x')}" if text else None


def rdma_module(sysfs: Path, platform: str) -> bool:
    """Whether a module is loaded that gives network cards access to the devices' memory."""
    return any((sysfs / name).exists() for name in _RDMA.get(platform, ()))


def driver_release(sysfs: Path, platform: str) -> str | None:
    """The version of the kernel module that drives the devices; None for one that is part of the kernel."""
    return _text(sysfs / "module" / _DRIVERS[platform] / "version") if platform in _DRIVERS else None


def _device(sysfs: Path, address: str) -> Path:
    return sysfs / "bus/pci/devices" / address.lower()


def _path_to(sysfs: Path, address: str) -> Iterator[Path]:
    """The device's folder, then those of the bridges and switches between it and the processor."""
    try:
        folder = _device(sysfs, address).resolve(strict=True)
    except OSError:
        return
    while (folder / "max_link_speed").exists() or (folder / "max_link_width").exists():
        yield folder
        folder = folder.parent


def _generation(file: Path) -> int | None:
    """``"16.0 GT/s PCIe"`` is generation 4."""
    words = (_text(file) or "").split()
    try:
        return _SPEEDS.index(float(words[0])) + 1
    except (IndexError, ValueError):
        return None


def _number(file: Path) -> int | None:
    """A positive number; a link that is down has 0 or 255 lanes, which says nothing."""
    try:
        number = int(_text(file) or "")
    except ValueError:
        return None
    return number if 0 < number < 255 else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
