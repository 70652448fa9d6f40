"""Reads a GPU's description from the runtime, and from NVML and /sys where CuPy has no answer."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plait.devices.gpu import driver, nvml, sysfs
from plait.devices.gpu.describe import GpuDescription
from plait.errors import DeviceError

# What CuPy's properties lack on HIP is asked by HIP's own numbers: CuPy's constants there are an older HIP's.
_HIP_ATTRIBUTES = {
    "asyncEngineCount": 2,
    "regsPerMultiprocessor": 72,
    "sharedMemPerBlockOptin": 75,
    "sharedMemPerMultiprocessor": 76,
    "unifiedAddressing": 85,
    "dmaBuf": 93,
}
# The same for what CUDA's properties lack, or lost in CUDA 13.
_CUDA_ATTRIBUTES = {
    "clockRate": 13,
    "memoryClockRate": 36,
    "gpuDirectRdma": 116,
}
# Farther from 0 than any driver's range: the driver takes its nearest.
_EXTREME_PRIORITY = 1 << 20


def describe(ordinal: int, sysfs_root: Path = sysfs.SYS, nvml_module: Any = None) -> GpuDescription:
    """What is known of the device; DeviceError if there is none of that ordinal. The current device stays as it is."""
    runtime, platform = driver.runtime(), driver.platform_name()
    count = _ask(runtime.getDeviceCount)
    if count is None or not 0 <= ordinal < count:
        raise DeviceError(f"there is no device {platform}:{ordinal}: the driver has {count or 0}")
    figures = _Figures(platform, ordinal)
    address = _ask(lambda: str(runtime.deviceGetPCIBusId(ordinal)).lower())
    managed = nvml.Managed()
    if platform == "cuda" and address is not None:
        managed = nvml.managed(address, nvml_module)
    generation, width = (None, None) if address is None else sysfs.pci_link(sysfs_root, address)
    integrated = figures.flag("integrated")
    return GpuDescription(
        name=figures.text("name"),
        platform=platform,
        ordinal=ordinal,
        architecture=figures.architecture(),
        compute_capability=figures.capability(),
        driver_version=version_text(platform, _ask(runtime.driverGetVersion)),
        driver_release=managed.driver_release or sysfs.driver_release(sysfs_root, platform),
        runtime_version=version_text(platform, _ask(runtime.runtimeGetVersion)),
        multiprocessors=figures.positive("multiProcessorCount"),
        warp_size=figures.positive("warpSize"),
        maximum_threads_per_block=figures.positive("maxThreadsPerBlock"),
        maximum_threads_per_multiprocessor=figures.positive("maxThreadsPerMultiProcessor"),
        maximum_block=figures.three("maxThreadsDim"),
        maximum_grid=figures.three("maxGridSize"),
        shared_bytes_per_block=figures.positive("sharedMemPerBlock"),
        shared_bytes_per_block_optin=figures.positive("sharedMemPerBlockOptin"),
        shared_bytes_per_multiprocessor=figures.positive("sharedMemPerMultiprocessor")
        or figures.positive("maxSharedMemoryPerMultiProcessor"),
        registers_per_block=figures.positive("regsPerBlock"),
        registers_per_multiprocessor=figures.positive("regsPerMultiprocessor"),
        l2_bytes=figures.positive("l2CacheSize"),
        memory_bytes=figures.positive("totalGlobalMem"),
        memory_bus_bits=figures.positive("memoryBusWidth"),
        memory_clock_hz=_khz(figures.positive("memoryClockRate")),
        clock_hz=_khz(figures.positive("clockRate")),
        copy_engines=figures.number("asyncEngineCount"),
        concurrent_kernels=figures.flag("concurrentKernels"),
        managed_memory=figures.flag("managedMemory"),
        ecc=figures.flag("ECCEnabled") if managed.ecc is None else managed.ecc,
        ipc=_ipc(figures.flag("unifiedAddressing"), integrated),
        rdma=sysfs.rdma_module(sysfs_root, platform)
        or figures.flag("gpuDirectRdma" if platform == "cuda" else "dmaBuf"),
        peers=_peers(ordinal, count),
        stream_priorities=stream_priorities(ordinal),
        pci_address=address,
        pci_generation=managed.pci_generation or generation,
        pci_width=managed.pci_width or width,
        nvlink=managed.nvlink,
        numa_node=None if address is None else sysfs.numa_node(sysfs_root, address),
        uuid=managed.uuid or figures.uuid() or (None if address is None else sysfs.unique_id(sysfs_root, address)),
    )


def stream_priorities(ordinal: int) -> tuple[int, int]:
    """The least and the greatest priority as the driver counts them; (0, 0) if it does not say.

    CuPy cannot ask for the range, so two streams that ask for too much tell what they got.
    """
    try:
        with current(ordinal):
            return _priority_for(_EXTREME_PRIORITY), _priority_for(-_EXTREME_PRIORITY)
    except RuntimeError:
        return 0, 0


@contextlib.contextmanager
def current(ordinal: int) -> Iterator[None]:
    """The device is this thread's current one inside; the former one is again afterwards."""
    runtime = driver.runtime()
    former = runtime.getDevice()
    try:
        if former != ordinal:
            runtime.setDevice(ordinal)
        yield
    finally:
        if former != ordinal:
            runtime.setDevice(former)


class _Figures:
    """The properties that CuPy hands out, and the attributes behind those that it lacks."""

    def __init__(self, platform: str, ordinal: int) -> None:
        runtime = driver.runtime()
        self._attribute = runtime.deviceGetAttribute
        self._ordinal = ordinal
        self._attributes: Mapping[str, int] = _HIP_ATTRIBUTES if platform == "hip" else _CUDA_ATTRIBUTES
        self._properties: Mapping[str, Any] = _ask(lambda: runtime.getDeviceProperties(ordinal)) or {}

    def _get(self, key: str) -> Any:
        if key in self._properties:
            return self._properties[key]
        if key in self._attributes:
            return _ask(lambda: self._attribute(self._attributes[key], self._ordinal))
        return None

    def number(self, key: str) -> int | None:
        value = self._get(key)
        return int(value) if isinstance(value, int) and value >= 0 else None

    def positive(self, key: str) -> int | None:
        """A figure of which 0 means that the driver does not know."""
        return self.number(key) or None

    def flag(self, key: str) -> bool | None:
        value = self._get(key)
        return None if value is None else bool(value)

    def text(self, key: str) -> str | None:
        value = self._get(key)
        return value.decode(errors="replace").strip() or None if isinstance(value, bytes) else None

    def three(self, key: str) -> tuple[int, int, int] | None:
        value = self._get(key)
        return (value[0], value[1], value[2]) if isinstance(value, tuple) and len(value) == 3 else None

    def capability(self) -> tuple[int, int] | None:
        major, minor = self.number("major"), self.number("minor")
        return None if major is None or minor is None else (major, minor)

    def architecture(self) -> str | None:
        """AMD's name without the features that follow it, or NVIDIA's made of the compute capability."""
        name, capability = self.text("gcnArchName"), self.capability()
        if name is not None:
            return name.partition(":")[0]
        return None if capability is None else f"sm_{capability[0]}{capability[1]}"

    def uuid(self) -> str | None:
        """CuPy reads the 16 bytes as text, which ends at a zero byte: then they are not all there."""
        value = self._get("uuid")
        if not isinstance(value, bytes) or len(value) < 16:
            return None
        digits = value[:16].hex()
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _ask(question: Callable[[], Any]) -> Any:
    """The answer, or None where this driver or this CuPy has none."""
    try:
        return question()
    except (RuntimeError, AttributeError):  # CuPy's own errors are RuntimeErrors
        return None


def version_text(platform: str, number: int | None) -> str | None:
    """CUDA counts 12090 for 12.9, HIP 70051831 for 7.0.51831."""
    if not number:
        return None
    if platform == "hip":
        return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"
    return f"{number // 1000}.{number % 1000 // 10}"


def _khz(value: int | None) -> int | None:
    return None if value is None else value * 1000


def _ipc(unified: bool | None, integrated: bool | None) -> bool | None:
    """Memory is shared between processes where addresses are unified, on Linux, on a device with memory of its own."""
    return None if unified is None else unified and not integrated and sys.platform == "linux"


def _peers(ordinal: int, count: int) -> tuple[int, ...] | None:
    runtime = driver.runtime()
    reached = {
        other: _ask(functools.partial(runtime.deviceCanAccessPeer, ordinal, other))
        for other in range(count)
        if other != ordinal
    }
    return None if None in reached.values() else tuple(other for other, can in reached.items() if can)


def _priority_for(asked: int) -> int:
    runtime = driver.runtime()
    stream = runtime.streamCreateWithPriority(runtime.streamNonBlocking, asked)
    try:
        return int(runtime.streamGetPriority(stream))
    finally:
        runtime.streamDestroy(stream)
