"""Stand-ins for what a GPU's description is read from: CuPy's runtime, NVML, and a tree of /sys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plait.devices.gpu import driver

ADDRESS = "0000:41:00.0"

CUDA_PROPERTIES: dict[str, Any] = {
    "name": b"Imaginary H900",
    "major": 9,
    "minor": 0,
    "totalGlobalMem": 80 << 30,
    "sharedMemPerBlock": 48 << 10,
    "sharedMemPerBlockOptin": 227 << 10,
    "sharedMemPerMultiprocessor": 228 << 10,
    "regsPerBlock": 65536,
    "regsPerMultiprocessor": 65536,
    "warpSize": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiProcessor": 2048,
    "maxThreadsDim": (1024, 1024, 64),
    "maxGridSize": (2147483647, 65535, 65535),
    "multiProcessorCount": 132,
    "l2CacheSize": 50 << 20,
    "memoryBusWidth": 5120,
    "memoryClockRate": 2619000,
    "clockRate": 1980000,
    "asyncEngineCount": 3,
    "concurrentKernels": 1,
    "managedMemory": 1,
    "unifiedAddressing": 1,
    "integrated": 0,
    "ECCEnabled": 1,
    "uuid": bytes(range(1, 17)) + b"beyond",
}


class RuntimeFailure(RuntimeError):
    """As CuPy's CUDARuntimeError."""

    def __init__(self, status: int, text: str = "some words") -> None:
        super().__init__(text)
        self.status = status


class FakeRuntime:
    """A runtime of some devices; ``failing`` has the calls that fail, and with what status."""

    CUDARuntimeError = RuntimeFailure
    streamNonBlocking = 1

    def __init__(self, properties: dict[str, Any], devices: int = 1, **failing: int) -> None:
        self.properties = properties
        self.devices = devices
        self.failing = failing
        self.attributes: dict[int, int] = {}
        self.range = (0, -5)
        self.versions = (13000, 12090)
        self.current = 0
        self.streams: list[int] = []

    def __getattribute__(self, name: str) -> Any:
        failing = object.__getattribute__(self, "__dict__").get("failing", {})
        if name in failing:

            def fail(*args: object) -> Any:
                raise RuntimeFailure(failing[name])

            return fail
        return object.__getattribute__(self, name)

    def getDeviceCount(self) -> int:
        return self.devices

    def getDevice(self) -> int:
        return self.current

    def setDevice(self, ordinal: int) -> None:
        self.current = ordinal

    def getDeviceProperties(self, ordinal: int) -> dict[str, Any]:
        return self.properties

    def deviceGetAttribute(self, attribute: int, ordinal: int) -> int:
        if attribute not in self.attributes:
            raise RuntimeFailure(1)
        return self.attributes[attribute]

    def deviceGetPCIBusId(self, ordinal: int) -> str:
        return ADDRESS.upper()

    def deviceCanAccessPeer(self, ordinal: int, other: int) -> int:
        return int(other != 2)

    def driverGetVersion(self) -> int:
        return self.versions[0]

    def runtimeGetVersion(self) -> int:
        return self.versions[1]

    def streamCreateWithPriority(self, flags: int, priority: int) -> int:
        least, greatest = self.range
        self.streams.append(min(max(priority, greatest), least))
        return len(self.streams)

    def streamGetPriority(self, stream: int) -> int:
        return self.streams[stream - 1]

    def streamDestroy(self, stream: int) -> None:
        assert stream == len(self.streams), "each stream is destroyed before the next is made"

    def free(self, address: int) -> None:
        pass


class FakeNvml:
    """NVML of one device with two links up of three, which lacks whatever ``lacking`` names."""

    NVML_NVLINK_MAX_LINKS = 18

    class NVMLError(Exception):
        """As pynvml's."""

    def __init__(self, *lacking: str) -> None:
        self.open = 0
        self._lacking = lacking
        self._answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetHandleByPciBusId": lambda address: {ADDRESS: "handle"}[address],
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda handle: 16,
            "nvmlDeviceGetEccMode": lambda handle: [0, 1],
            "nvmlDeviceGetUUID": lambda handle: b"GPU-from-nvml",
            "nvmlSystemGetDriverVersion": lambda: "580.1.2",
            "nvmlDeviceGetNvLinkState": self._link,
        }

    def nvmlInit(self) -> None:
        if "nvmlInit" in self._lacking:
            raise self.NVMLError
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*args: object) -> Any:
            if name in self._lacking:
                raise self.NVMLError
            return self._answers[name](*args)

        return answer

    def _link(self, handle: str, link: int) -> int:
        if link >= 3:
            raise self.NVMLError
        return int(link != 1)


def fake_sysfs(root: Path) -> Path:
    """A device behind a bridge whose own link is slower and narrower."""
    bridge = root / "devices/pci0000:40/0000:40:01.0"
    device = bridge / ADDRESS
    files = {
        bridge / "max_link_speed": "16.0 GT/s PCIe\n",
        bridge / "current_link_width": "8\n",
        device / "max_link_speed": "32.0 GT/s PCIe\n",
        device / "current_link_speed": "2.5 GT/s PCIe\n",
        device / "current_link_width": "16\n",
        device / "numa_node": "1\n",
        device / "unique_id": "0123456789abcdef\n",
        root / "module/nvidia/version": "570.86.15\n",
        root / "module/amdgpu/version": "6.12.12\n",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    links = root / "bus/pci/devices"
    links.mkdir(parents=True)
    (links / ADDRESS).symlink_to(device)
    return root


def use(monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime, platform: str = "cuda") -> None:
    """Have plait take this runtime for CuPy's."""
    monkeypatch.setattr(driver, "runtime", lambda: runtime)
    monkeypatch.setattr(driver, "platform_name", lambda: platform)
