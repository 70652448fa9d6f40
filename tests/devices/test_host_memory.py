"""Host memory beyond conformance: limits, what a failure says, blocks as arrays."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from plait.devices import HostAllocator, HostDevice
from plait.errors import DeviceError, OutOfMemory
from plait.testing.conformance_kit import Gate, finish


def test_a_limit_is_kept_and_the_refusal_says_why() -> None:
    allocator = HostAllocator(limit_bytes=1000)
    block = allocator.allocate(600)
    allocator.free(allocator.allocate(300))
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(401)
    for figure in (
        "401 bytes",
        "600 bytes in use in 1 blocks",
        "limit 1000 bytes",
        "largest block so far 600",
    ):
        assert figure in str(caught.value)
    assert allocator.statistics() == {
        "allocations": 2,
        "blocks": 1,
        "in_use": 600,
        "peak": 900,
        "largest": 600,
        "limit": 1000,
    }
    allocator.free(block)
    allocator.allocate(1000)
    with pytest.raises(DeviceError):
        HostAllocator(limit_bytes=-1)


def test_statistics_are_a_snapshot_that_cannot_be_changed() -> None:
    allocator = HostAllocator()
    before = allocator.statistics()
    block = allocator.allocate(10)
    assert before["in_use"] == 0
    with pytest.raises(TypeError):
        before["in_use"] = 3  # type: ignore[index]
    assert "limit" not in before
    allocator.free(block)


def test_blocks_become_arrays_of_any_dtype() -> None:
    allocator = HostAllocator()
    block = allocator.allocate(96, alignment=4096)
    array = block.array((2, 3, 2), np.float64)
    array[...] = 1.5
    assert array.ctypes.data == block.address
    assert (block.array(12, "f8") == 1.5).all()
    assert block.array((), "i4").shape == ()
    for shape, dtype in (((13,), "f8"), ((2,), object), ((-1,), "u1")):
        with pytest.raises(DeviceError):
            block.array(shape, dtype)
    allocator.free(block)
    with pytest.raises(DeviceError, match="freed"):
        block.array(1, "u1")
    assert (array == 1.5).all(), "an array that is still held stays valid memory"


def test_freed_bytes_go_back_to_the_system() -> None:
    allocator = HostAllocator()
    block = allocator.allocate(1 << 20)
    gone = weakref.ref(block._bytes.base)
    allocator.free(block)
    gc.collect()
    assert gone() is None


def test_a_block_of_another_allocator_is_refused() -> None:
    block = HostAllocator().allocate(8)
    with pytest.raises(DeviceError, match="not of this allocator"):
        HostAllocator().free(block)


def test_a_free_behind_a_stream_counts_when_the_stream_has_passed() -> None:
    host, gate = HostDevice(), Gate()
    stream, block = host.stream(), host.allocator.allocate(100)
    stream.wait(gate)
    host.allocator.free(block, stream=stream)
    assert host.allocator.statistics()["in_use"] == 100
    gate.open()
    finish(stream)
    assert host.allocator.statistics()["in_use"] == 0


def test_a_free_behind_nonsense_frees_nothing() -> None:
    host = HostDevice()
    block = host.allocator.allocate(100)
    with pytest.raises(DeviceError):
        host.allocator.free(block, stream="stream")  # type: ignore[arg-type]
    host.allocator.free(block)
