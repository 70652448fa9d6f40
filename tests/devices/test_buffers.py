"""A plan's buffers by index: slices, what is refused, whose the bytes are, donation."""

from __future__ import annotations

import numpy as np
import pytest
from plait.devices import HostAllocator, HostDevice
from plait.devices.memory import BufferAllocations, Donation, Pool, PooledAllocator
from plait.errors import DeviceError, OutOfMemory
from plait.testing.conformance_kit import Gate, finish


def in_use(allocator: HostAllocator) -> int:
    return allocator.statistics()["in_use"]


def test_slices_of_sixteen_bytes() -> None:
    buffers = BufferAllocations(HostAllocator(), 2, names=["x", "y"])
    buffers.bind(0, np.arange(16, dtype=np.uint8))
    assert buffers.slice(0, 8, 8).tolist() == list(range(8, 16))
    for offset, nbytes in ((16, 1), (8, 9), (-1, 4), (0, 17), (4, -1)):
        with pytest.raises(DeviceError, match="not in buffer 'x', which has 16"):
            buffers.slice(0, offset, nbytes)
    for index in (-1, 2):
        with pytest.raises(DeviceError, match="numbered from 0 to 1"):
            buffers.slice(index, 0, 1)
    with pytest.raises(DeviceError, match="buffer 'y' is not bound"):
        buffers.slice(1, 0, 1)
    for index in (0, 1, 7):
        assert buffers.slice(index, 99, 0) is None, "no bytes are nothing, whatever the index"


def test_slices_and_arrays_are_the_buffers_own_bytes() -> None:
    x = np.zeros((2, 3), "f4")
    buffers = BufferAllocations(HostAllocator(), 1)
    buffers.bind(0, x)
    buffers.array(0, (1, 3), "f4", offset=12)[...] = 5
    assert x.tolist() == [[0, 0, 0], [5, 5, 5]]
    assert buffers.array(0, (0, 4), "f8").shape == (0, 4)
    assert buffers.nbytes(0) == 24
    for shape, offset in ((7, 0), (3, 16), (1, 24), (1, -4)):
        with pytest.raises(DeviceError):
            buffers.array(0, shape, "f4", offset=offset)


def test_what_remains_is_freed_and_what_was_bound_is_not() -> None:
    host = HostAllocator()
    given = host.allocate(64)
    with BufferAllocations(host, 4) as buffers:
        buffers.bind(0, given)
        for index, nbytes in ((1, 100), (2, 200), (3, 0)):
            buffers.allocate(index, nbytes)
        buffers.free(1)
        assert in_use(host) == 264
        with pytest.raises(DeviceError, match="buffer 1 is not bound"):
            buffers.free(1)
    assert in_use(host) == 64
    buffers.close()
    assert given.array(64, "u1").nbytes == 64
    assert len(buffers) == 4


def test_what_remains_is_freed_after_an_error() -> None:
    host = HostAllocator(limit_bytes=1000)
    with pytest.raises(OutOfMemory), BufferAllocations(host, 2) as buffers:
        buffers.allocate(0, 600)
        buffers.allocate(1, 600)
    assert in_use(host) == 0


def test_a_buffer_is_bound_once() -> None:
    buffers = BufferAllocations(HostAllocator(), 1)
    buffers.allocate(0, 8)
    for again in (
        lambda: buffers.allocate(0, 8),
        lambda: buffers.bind(0, np.zeros(8)),
        lambda: buffers.accept(0, Donation(np.zeros(8))),
    ):
        with pytest.raises(DeviceError, match="bound already"):
            again()
    buffers.free(0)
    buffers.allocate(0, 16)
    assert buffers.nbytes(0) == 16


def test_a_result_is_handed_over() -> None:
    host = HostAllocator()
    mine = np.zeros(4)
    with BufferAllocations(host, 2) as buffers:
        buffers.allocate(0, 32)
        buffers.array(0, 4, "f8")[...] = 3
        buffers.bind(1, mine)
        block = buffers.hand_over(0)
        assert np.shares_memory(buffers.hand_over(1), mine)
        with pytest.raises(DeviceError, match="not bound"):
            buffers.hand_over(0)
    assert in_use(host) == 32
    assert block.array(4, "f8").tolist() == [3] * 4
    host.free(block)


def test_bytes_that_do_not_lie_in_order_are_refused() -> None:
    buffers = BufferAllocations(HostAllocator(), 1, names=["x"])
    for value in (np.zeros((4, 4))[:, ::2], np.array([None]), [1, 2], 3.0):
        with pytest.raises(DeviceError, match=r"buffer 'x': .* pass a contiguous one"):
            buffers.bind(0, value)
    buffers.bind(0, np.float64(2))
    assert buffers.nbytes(0) == 8


def test_a_donated_block_becomes_an_output() -> None:
    host = HostAllocator()
    block = host.allocate(32)
    donation = Donation(block)
    buffers = BufferAllocations(host, 3, names=["x", "y", "z"])
    assert donation.value is block
    buffers.accept(0, donation)
    with pytest.raises(DeviceError, match="taken by buffer 'x'"):
        _ = donation.value
    with pytest.raises(DeviceError, match="keep a copy"):
        buffers.accept(1, donation)
    address = buffers.slice(0, 0, 1).ctypes.data
    with pytest.raises(DeviceError, match="needs 16 bytes, not the 32 of 'x'"):
        buffers.reuse(1, 0, 16)
    buffers.reuse(1, 0, 32)
    assert buffers.slice(1, 0, 1).ctypes.data == address
    with pytest.raises(DeviceError, match="'x' was donated, and its bytes are 'y''s now"):
        buffers.slice(0, 0, 1)
    buffers.bind(0, np.zeros(4))
    with pytest.raises(DeviceError, match="'z' cannot have the bytes of 'x', which was not donated"):
        buffers.reuse(2, 0, 32)
    buffers.free(0)
    with pytest.raises(DeviceError, match="buffer 'x' is not bound"):
        buffers.slice(0, 0, 1)
    with pytest.raises(DeviceError, match="'z' cannot have the bytes of 'y', which was not donated"):
        buffers.reuse(2, 1, 32)
    assert buffers.hand_over(1) is block
    buffers.close()
    assert in_use(host) == 32


def test_a_donation_that_nobody_reuses_is_freed() -> None:
    host = HostAllocator()
    with BufferAllocations(host, 2) as buffers:
        buffers.accept(0, Donation(host.allocate(32)))
        buffers.accept(1, Donation(np.zeros(4)))
    assert in_use(host) == 0


def test_a_donation_that_does_not_fit_stays_the_callers() -> None:
    donation = Donation(np.zeros((4, 4)).T[::2])
    buffers = BufferAllocations(HostAllocator(), 1)
    with pytest.raises(DeviceError, match="contiguous"):
        buffers.accept(0, donation)
    assert donation.value.shape == (2, 4)
    assert "Donation of" in repr(donation)


def test_a_block_of_another_allocator_is_not_accepted() -> None:
    ours, other = HostAllocator(), HostAllocator()
    donation = Donation(other.allocate(8))
    with pytest.raises(DeviceError, match="not of this allocator"), BufferAllocations(ours, 1) as buffers:
        buffers.accept(0, donation)


def test_what_is_bound_is_not_reused() -> None:
    buffers = BufferAllocations(HostAllocator(), 2)
    buffers.bind(0, np.zeros(4))
    with pytest.raises(DeviceError, match="which was not donated"):
        buffers.reuse(1, 0, 32)


def test_on_a_pool_in_the_order_of_a_stream() -> None:
    host, gate = HostDevice(), Gate()
    stream, other = host.stream(), host.stream()
    pool = Pool(HostAllocator(), limit=4096)
    buffers = BufferAllocations(PooledAllocator(pool), 2)
    buffers.allocate(0, 4096, stream=stream)
    stream.wait(gate)
    buffers.close(stream=stream)
    with pytest.raises(OutOfMemory):
        buffers.allocate(0, 4096, stream=other)
    buffers.allocate(1, 4096, stream=stream)
    buffers.close(stream=stream)
    gate.open()
    finish(stream)
    buffers.allocate(0, 4096, stream=other)
    buffers.close()
    pool.close()
