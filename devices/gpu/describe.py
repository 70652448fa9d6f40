"""What a GPU is: frozen values with units in their names, None where unknown, and their JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from plait.errors import DeviceError


@dataclasses.dataclass(frozen=True, slots=True)
class GpuDescription:
    """A GPU. A multiprocessor is CUDA's streaming multiprocessor or HIP's compute unit.

    ``architecture`` is what a compiler is told, ``"sm_90"`` or ``"gfx90a"``; ``driver_version`` the newest runtime that
    the driver serves and ``driver_release`` the kernel module's own number. ``memory_bandwidth`` and ``pci_bandwidth``
    are the peaks that follow from clocks and widths, in bytes per second, a PCIe lane of generation 1 counting as
    0.25 GiB/s. ``peers`` are the ordinals whose memory this device reaches. ``stream_priorities`` is least and greatest
    as the driver counts, where a smaller number is more urgent; (0, 0) means that it has one level.
    """

    name: str | None = None
    platform: str | None = None
    ordinal: int | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    driver_version: str | None = None
    driver_release: str | None = None
    runtime_version: str | None = None
    multiprocessors: int | None = None
    warp_size: int | None = None
    maximum_threads_per_block: int | None = None
    maximum_threads_per_multiprocessor: int | None = None
    maximum_block: tuple[int, int, int] | None = None
    maximum_grid: tuple[int, int, int] | None = None
    shared_bytes_per_block: int | None = None
    shared_bytes_per_block_optin: int | None = None
    shared_bytes_per_multiprocessor: int | None = None
    registers_per_block: int | None = None
    registers_per_multiprocessor: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    memory_bus_bits: int | None = None
    memory_clock_hz: int | None = None
    clock_hz: int | None = None
    copy_engines: int | None = None
    concurrent_kernels: bool | None = None
    managed_memory: bool | None = None
    ecc: bool | None = None
    ipc: bool | None = None
    rdma: bool | None = None
    peers: tuple[int, ...] | None = None
    stream_priorities: tuple[int, int] = (0, 0)
    pci_address: str | None = None
    pci_generation: int | None = None
    pci_width: int | None = None
    nvlink: int | None = None
    numa_node: int | None = None
    uuid: str | None = None

    @property
    def memory_bandwidth(self) -> int | None:
        """Peak bytes per second of the device's memory: two transfers a clock over the whole bus."""
        if self.memory_clock_hz is None or self.memory_bus_bits is None:
            return None
        return 2 * self.memory_clock_hz * self.memory_bus_bits // 8

    @property
    def pci_bandwidth(self) -> int | None:
        """Peak bytes per second of the PCIe link, one way."""
        if self.pci_generation is None or self.pci_width is None:
            return None
        return (1 << 28) * self.pci_width << (self.pci_generation - 1)

    def __str__(self) -> str:
        """The main figures in one line; what is unknown is left out."""
        reach = self.peers and "reaches " + " ".join(f"{self.platform}:{peer}" for peer in self.peers)
        link = self.pci_generation and self.pci_width and f"PCIe {self.pci_generation}.0 x{self.pci_width}"
        parts = [
            self.name,
            self.architecture,
            self.multiprocessors and f"{self.multiprocessors} multiprocessors",
            self.clock_hz and f"{self.clock_hz / 1e9:.2f} GHz",
            self.memory_bytes and f"{self.memory_bytes / (1 << 30):.1f} GiB memory",
            self.memory_bandwidth and f"{self.memory_bandwidth / 1e9:.0f} GB/s",
            self.l2_bytes and f"L2 {self.l2_bytes / (1 << 20):.1f} MiB",
            self.copy_engines and f"{self.copy_engines} copy engine(s)",
            f"{self.stream_priorities[0] - self.stream_priorities[1] + 1} stream priority level(s)",
            link,
            self.nvlink and f"{self.nvlink} NVLinks",
            reach,
            self.driver_version and f"driver {self.driver_version}",
        ]
        return ", ".join(part for part in parts if part)

    def to_json(self) -> str:
        """Every field, and the two bandwidths that follow from them."""
        derived = {"memory_bandwidth": self.memory_bandwidth, "pci_bandwidth": self.pci_bandwidth}
        return json.dumps(dataclasses.asdict(self) | derived, indent=1)

    @classmethod
    def from_json(cls, text: str) -> GpuDescription:
        """The description that ``to_json`` wrote; DeviceError if the text is not one."""
        try:
            fields: Any = json.loads(text)
            for derived in ("memory_bandwidth", "pci_bandwidth"):
                fields.pop(derived, None)
            values: dict[str, Any] = {key: tuple(it) if isinstance(it, list) else it for key, it in fields.items()}
            return cls(**values)
        except (ValueError, TypeError, AttributeError) as error:
            raise DeviceError(f"this is not a GPU description in JSON: {error}") from error
