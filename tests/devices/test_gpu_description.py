"""A GPU's description: read figure by figure from stand-ins, and all unknown where nothing answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fake_gpu import ADDRESS, CUDA_PROPERTIES, FakeNvml, FakeRuntime, fake_sysfs, use
from plait.devices.gpu import nvml, sysfs
from plait.devices.gpu.describe import GpuDescription
from plait.devices.gpu.probe import current, describe
from plait.errors import DeviceError

ON_LINUX = sys.platform == "linux"


def test_a_cuda_device_is_read_figure_by_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runtime = FakeRuntime(CUDA_PROPERTIES, devices=4)
    runtime.attributes = {116: 1}
    use(monkeypatch, runtime)
    management = FakeNvml()
    found = describe(1, fake_sysfs(tmp_path), management)
    assert found == GpuDescription(
        name="Imaginary H900",
        platform="cuda",
        ordinal=1,
        architecture="sm_90",
        compute_capability=(9, 0),
        driver_version="13.0",
        driver_release="580.1.2",
        runtime_version="12.9",
        multiprocessors=132,
        warp_size=32,
        maximum_threads_per_block=1024,
        maximum_threads_per_multiprocessor=2048,
        maximum_block=(1024, 1024, 64),
        maximum_grid=(2147483647, 65535, 65535),
        shared_bytes_per_block=48 << 10,
        shared_bytes_per_block_optin=227 << 10,
        shared_bytes_per_multiprocessor=228 << 10,
        registers_per_block=65536,
        registers_per_multiprocessor=65536,
        l2_bytes=50 << 20,
        memory_bytes=80 << 30,
        memory_bus_bits=5120,
        memory_clock_hz=2_619_000_000,
        clock_hz=1_980_000_000,
        copy_engines=3,
        concurrent_kernels=True,
        managed_memory=True,
        ecc=False,
        ipc=ON_LINUX,
        rdma=True,
        peers=(0, 3),
        stream_priorities=(0, -5),
        pci_address=ADDRESS,
        pci_generation=5,
        pci_width=16,
        nvlink=2,
        numa_node=1,
        uuid="GPU-from-nvml",
    )
    assert found.memory_bandwidth == 2 * 2_619_000_000 * 640
    assert found.pci_bandwidth == 64 << 30
    assert GpuDescription.from_json(found.to_json()) == found
    assert json.loads(found.to_json())["memory_bandwidth"] == found.memory_bandwidth
    assert runtime.current == 0
    assert management.open == 0


def test_without_nvml_the_runtime_and_sysfs_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runtime = FakeRuntime(CUDA_PROPERTIES)
    use(monkeypatch, runtime)
    found = describe(0, fake_sysfs(tmp_path), FakeNvml("nvmlInit"))
    assert found.uuid == "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
    assert (found.pci_generation, found.pci_width, found.pci_bandwidth) == (4, 8, 16 << 30)
    assert found.driver_release == "570.86.15"
    assert (found.nvlink, found.ecc, found.rdma, found.peers) == (None, True, None, ())
    (tmp_path / "module/nvidia_peermem").mkdir()
    assert describe(0, tmp_path, FakeNvml("nvmlInit")).rdma is True


def test_cuda_13_clocks_come_from_attributes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lost = ("clockRate", "memoryClockRate")
    runtime = FakeRuntime({key: value for key, value in CUDA_PROPERTIES.items() if key not in lost})
    runtime.attributes = {13: 1_000, 36: 0}
    use(monkeypatch, runtime)
    found = describe(0, tmp_path, FakeNvml("nvmlInit"))
    assert (found.clock_hz, found.memory_clock_hz, found.memory_bandwidth) == (1_000_000, None, None)


def test_a_hip_device_is_asked_by_hips_own_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runtime = FakeRuntime(
        {
            "name": b"",
            "gcnArchName": b"gfx90a:sramecc+:xnack-",
            "major": 9,
            "minor": 0,
            "maxSharedMemoryPerMultiProcessor": 65536,
            "clockRate": 1_700_000,
            "memoryClockRate": 0,
            "managedMemory": 0,
        }
    )
    runtime.attributes = {2: 8, 72: 131072, 76: 0, 85: 1}
    runtime.versions = (70051831, 70051831)
    runtime.range = (1, -1)
    use(monkeypatch, runtime, "hip")
    found = describe(0, fake_sysfs(tmp_path))
    assert found == GpuDescription(
        platform="hip",
        ordinal=0,
        architecture="gfx90a",
        compute_capability=(9, 0),
        driver_version="7.0.51831",
        driver_release="6.12.12",
        runtime_version="7.0.51831",
        shared_bytes_per_multiprocessor=65536,
        registers_per_multiprocessor=131072,
        clock_hz=1_700_000_000,
        copy_engines=8,
        managed_memory=False,
        ipc=ON_LINUX,
        peers=(),
        stream_priorities=(1, -1),
        pci_address=ADDRESS,
        pci_generation=4,
        pci_width=8,
        numa_node=1,
        uuid="GPU-0123456789abcdef",
    )
    (tmp_path / "kernel/mm/memory_peers/amdkfd").mkdir(parents=True)
    assert describe(0, tmp_path).rdma is True


def test_a_driver_that_answers_nothing_leaves_all_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    queries = ("getDeviceProperties", "deviceGetPCIBusId", "deviceCanAccessPeer", "driverGetVersion")
    failing = dict.fromkeys((*queries, "runtimeGetVersion", "streamCreateWithPriority"), 719)
    use(monkeypatch, FakeRuntime({}, devices=2, **failing))
    assert describe(1, tmp_path) == GpuDescription(platform="cuda", ordinal=1)


@pytest.mark.parametrize("ordinal", [-1, 2])
def test_an_ordinal_beyond_the_devices_is_refused(monkeypatch: pytest.MonkeyPatch, ordinal: int) -> None:
    use(monkeypatch, FakeRuntime({}, devices=2))
    with pytest.raises(DeviceError, match="the driver has 2"):
        describe(ordinal)


def test_no_driver_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeRuntime({}, getDeviceCount=35))
    with pytest.raises(DeviceError, match="the driver has 0"):
        describe(0)


def test_the_former_device_is_current_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime({}, devices=2)
    use(monkeypatch, runtime)
    with pytest.raises(KeyError), current(1):
        assert runtime.current == 1
        raise KeyError
    assert runtime.current == 0


def test_properties_of_nonsense_are_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    strange = {"name": 7, "major": None, "warpSize": "32", "maxGridSize": (1, 2), "totalGlobalMem": -1, "uuid": b"cut"}
    use(monkeypatch, FakeRuntime(strange, streamGetPriority=1))
    found = describe(0, tmp_path, FakeNvml("nvmlInit"))
    known = GpuDescription(
        platform="cuda", ordinal=0, driver_version="13.0", runtime_version="12.9", peers=(), pci_address=ADDRESS
    )
    assert found == known


def test_nvml_may_lack_any_of_it() -> None:
    assert nvml.managed(ADDRESS, FakeNvml("nvmlDeviceGetHandleByPciBusId")) == nvml.Managed()
    without_links = FakeNvml("nvmlDeviceGetNvLinkState", "nvmlDeviceGetEccMode", "nvmlDeviceGetUUID")
    found = nvml.managed(ADDRESS, without_links)
    assert found == nvml.Managed(pci_generation=5, pci_width=16, driver_release="580.1.2")
    assert without_links.open == 0


def test_nvml_that_is_not_installed_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.managed(ADDRESS) == nvml.Managed()


def test_sysfs_that_is_not_there_or_nonsense_is_unknown(tmp_path: Path) -> None:
    assert sysfs.pci_link(tmp_path, ADDRESS) == (None, None)
    assert sysfs.numa_node(tmp_path, ADDRESS) is None
    root = fake_sysfs(tmp_path / "sys")
    device = root / "bus/pci/devices" / ADDRESS
    for file in [*device.iterdir(), *device.resolve().parent.iterdir()]:
        if file.is_file():
            file.write_bytes(b"\xff nonsense")
    assert sysfs.pci_link(root, ADDRESS) == (None, None)
    assert sysfs.unique_id(root, ADDRESS) is None
    (device / "numa_node").write_text("-1\n")
    assert sysfs.numa_node(root, ADDRESS) == 0
    (device / "max_link_speed").write_text("Unknown\n")
    (device / "current_link_width").write_text("255\n")
    (device / "max_link_width").write_text("4\n")
    assert sysfs.pci_link(root, ADDRESS) == (None, 4)


@pytest.mark.parametrize("text", ["", "[]", "7", '{"ordinal": 1, "horses": 2}'])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(DeviceError):
        GpuDescription.from_json(text)


def test_its_line_has_what_is_known() -> None:
    assert str(GpuDescription()) == "1 stream priority level(s)"
    line = str(GpuDescription(name="X", platform="hip", peers=(0, 2), pci_generation=4, pci_width=16, nvlink=0))
    assert line == "X, 1 stream priority level(s), PCIe 4.0 x16, reaches hip:0 hip:2"
