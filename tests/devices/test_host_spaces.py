"""Pages of their own on the host: aligned, huge, bound to a NUMA node, and given back."""

from __future__ import annotations

import ctypes
import errno
import sys
from pathlib import Path

import numpy as np
import pytest
from plait.devices import HostAllocator, HostDevice
from plait.devices.host import HostDescription
from plait.devices.host.describe import NumaNode
from plait.devices.host.pages import HUGE_PAGE, bind, pages
from plait.devices.memory import Pool
from plait.errors import DeviceError, OutOfMemory
from plait.testing import conformance_memory

MEMORY_SUITE = {name: test for name, test in vars(conformance_memory).items() if name.startswith("test_")}
NUMA_MAPS = Path("/proc/self/numa_maps")


class SpacedPlatform:
    """The host, its memory from one space."""

    name, absent = "host", None

    def __init__(self, space: str) -> None:
        device = HostDevice()
        device.allocator = device.memory(space)
        self._devices = (device,)

    def devices(self) -> tuple[HostDevice, ...]:
        return self._devices


def mapping_of(address: int, file: str) -> list[str]:
    """The lines of /proc/self/smaps on the mapping that holds an address."""
    lines: list[str] = []
    inside = False
    for line in Path(file).read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside:
            lines.append(line)
    return lines


@pytest.mark.parametrize("space", ["pages", "huge"])
@pytest.mark.parametrize("name", MEMORY_SUITE)
def test_each_space_passes_the_suite(name: str, space: str) -> None:
    MEMORY_SUITE[name](SpacedPlatform(space))


@pytest.mark.parametrize(("space", "alignment"), [("pageable", 64), ("pages", 4096), ("huge", HUGE_PAGE)])
def test_alignment(space: str, alignment: int) -> None:
    allocator = HostDevice().memory(space)
    block = allocator.allocate(3 * HUGE_PAGE, alignment=alignment)
    assert block.address % alignment == 0
    block.array(3 * HUGE_PAGE, np.uint8)[...] = 1
    allocator.free(block)


def test_pages_are_zero_and_go_back_to_the_system() -> None:
    before = np.count_nonzero(pages(1 << 16))
    assert before == 0
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux tells where mappings are")
    array = pages(8 << 20)
    address = array.ctypes.data
    assert mapping_of(address, "/proc/self/smaps")
    view = array[100:200]
    del array
    assert mapping_of(address, "/proc/self/smaps"), "an array that is still held stays valid memory"
    del view
    gone = mapping_of(address, "/proc/self/smaps")
    assert not any(line.startswith("Size:") and int(line.split()[1]) == 8 << 10 for line in gone)


def test_huge_pages_are_asked_for() -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("a system without transparent huge pages")
    array = pages(4 * HUGE_PAGE, huge=True)
    assert array.ctypes.data % HUGE_PAGE == 0
    flags = next(line for line in mapping_of(array.ctypes.data, "/proc/self/smaps") if line.startswith("VmFlags:"))
    assert "hg" in flags.split()
    plain = pages(4 * HUGE_PAGE)
    flags = next(line for line in mapping_of(plain.ctypes.data, "/proc/self/smaps") if line.startswith("VmFlags:"))
    assert "hg" not in flags.split()


def test_pages_are_bound_to_a_node() -> None:
    if not NUMA_MAPS.exists():
        pytest.skip("a system without NUMA")
    array = pages(1 << 20)
    if not bind(array.ctypes.data, array.nbytes, 0):
        assert ctypes.get_errno() in (errno.EPERM, errno.ENOSYS)
        pytest.skip("this system refuses mbind, so pages lie where they are touched first")
    line = next(line for line in NUMA_MAPS.read_text().splitlines() if line.startswith(f"{array.ctypes.data:x} "))
    assert line.split()[1] == "bind:0"
    assert not bind(array.ctypes.data, array.nbytes, 900), "a node that there is not"


def two_nodes() -> HostDevice:
    device = HostDevice()
    nodes = tuple(NumaNode(ordinal=k, cores=(k,), memory_bytes=1 << 30, distances=(10, 20)) for k in (0, 1))
    device.__dict__["description"] = HostDescription(numa_nodes=nodes)
    return device


def test_a_node_is_one_that_the_machine_has() -> None:
    device = two_nodes()
    assert device.memory("pages", node=1).node == 1
    assert device.memory("huge", node=0) is device.memory("huge", node=0)
    assert device.memory("pages", node=1) is not device.memory("pages", node=0)
    assert device.memory("pages").node is None
    with pytest.raises(DeviceError, match="NUMA nodes 0, 1, not 2"):
        device.memory("pages", node=2)
    with pytest.raises(DeviceError, match="only pages and huge"):
        device.memory("pageable", node=0)


def test_with_one_node_there_is_nothing_to_bind() -> None:
    device = HostDevice()
    device.__dict__["description"] = HostDescription(numa_nodes=two_nodes().description.numa_nodes[:1])
    assert device.memory("pages", node=0) is device.memory("pages")


def test_memory_is_one_object_per_space() -> None:
    device = HostDevice()
    assert device.memory("pageable") is device.allocator
    assert device.memory("huge") is device.memory("huge")
    with pytest.raises(DeviceError, match="pageable, pages, huge, not 'texture'"):
        device.memory("texture")


def test_a_node_that_cannot_be_bound_leaves_ordinary_pages() -> None:
    allocator = HostAllocator("pages", node=900)
    block = allocator.allocate(1 << 16)
    block.array(1 << 16, "u1")[...] = 3
    allocator.free(block)


def test_the_system_refuses_with_the_figures() -> None:
    for space in ("pages", "huge"):
        with pytest.raises(OutOfMemory, match=f"cannot serve {1 << 62} bytes: 0 bytes in use"):
            HostAllocator(space).allocate(1 << 62)


def test_a_pool_over_huge_pages() -> None:
    upstream = HostAllocator("huge")
    pool = Pool(upstream)
    handle = pool.take(1 << 20)
    pool.array(handle, 1 << 20, "u1")[...] = 9
    pool.give(handle)
    pool.close()
    assert upstream.statistics()["in_use"] == 0
