"""plait's pool on a device: over CuPy's allocator in force, in stream order, back to the driver when trimmed."""

from __future__ import annotations

import cupy
import numpy as np
import plait
import pytest
import rig
from plait import DeviceError, OutOfMemory
from plait.devices.memory import BufferAllocations, Donation, PooledAllocator, behind, gpu_pool
from plait.testing import conformance_kit as kit

DEVICE = plait.device("hip:1")
MIB = 1 << 20


@pytest.fixture(params=["device", "pinned", "managed"])
def space(request):
    return request.param


def test_arrays_of_each_space(space):
    pool = gpu_pool(DEVICE, space)
    first, second = pool.take(4096), pool.take(100, alignment=1 << 16)
    assert pool.address(first) % 256 == 0
    assert pool.address(second) % (1 << 16) == 0
    array = pool.array(first, (16, 64), "f4")
    assert isinstance(array, np.ndarray if space == "pinned" else cupy.ndarray)
    with cupy.cuda.Device(1):
        array[...] = 3
        assert float(array.sum()) == 3 * 16 * 64
        assert pool.array(first, 1024, "f4")[-1] == 3
    empty = pool.array(pool.take(0), (0, 2), "f4")
    assert type(empty) is type(array)
    assert empty.shape == (0, 2)
    pool.give(first)
    pool.give(second)
    pool.close()
    assert DEVICE.memory(space).statistics()["in_use"] == 0


def test_a_stream_has_its_bytes_again_while_it_works_and_others_have_not():
    pool = gpu_pool(DEVICE, limit=MIB)
    one, two = DEVICE.stream(), DEVICE.stream()
    with rig.held("compute", 1):
        handle = pool.take(MIB, one)
        address = pool.address(handle)
        one.fill(pool.array(handle, MIB, "u1"), 5)
        pool.give(handle, one)
        again = pool.take(MIB, one)
        assert pool.address(again) == address
        pool.give(again, one)
        assert pool.try_take(MIB, two) is None
        with pytest.raises(OutOfMemory, match="only for streams that have not passed"):
            pool.take(MIB, two)
    kit.finish(one)
    kit.settle(one.record())
    other = pool.take(MIB, two)
    assert pool.address(other) == address
    contents = np.empty(MIB, "u1")
    two.copy(contents, pool.array(other, MIB, "u1"))
    kit.finish(two)
    assert (contents == 5).all()
    pool.give(other)
    pool.close()


def test_in_the_order_of_launch_queues():
    pool = gpu_pool(DEVICE, limit=MIB)
    one, two = (DEVICE.borrow(priority=0, kind="compute", name=f"q{k}") for k in range(2))
    with rig.held("compute", 1):
        handle = pool.take(MIB, one)
        array = pool.array(handle, MIB, "u1")
        one.launch(lambda: array.fill(1))
        pool.give(handle, one)
        assert pool.try_take(MIB, two) is None
        passed = behind(one)
        assert not passed()
    one.driver.synchronize()
    assert passed()
    assert pool.try_take(MIB, two) is not None
    for queue in (one, two):
        DEVICE.give_back(queue)


def test_regions_come_from_the_users_allocator_or_from_cupys():
    asked = []

    def mine(nbytes):
        asked.append(nbytes)
        return cupy.cuda.memory._malloc(nbytes)

    pool = gpu_pool(DEVICE)
    cupy.cuda.set_allocator(mine)
    try:
        for _ in range(100):
            pool.give(pool.take(1000))
        assert asked == [2 * MIB]
        assert pool.trim() == 2 * MIB
        pool.give(pool.take(3 * MIB))
        assert asked == [2 * MIB, 3 * MIB]
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    pool.close()


def test_regions_are_not_memory_that_another_stream_of_cupys_still_uses():
    with cupy.cuda.Device(1):
        cupy.get_default_memory_pool().free_all_blocks()
        with rig.held("compute", 1):
            busy = cupy.empty(2 * MIB, "u1")
            address = busy.data.ptr
            busy.fill(1)
            del busy  # CuPy has it again for the default stream, which has not passed
            pool = gpu_pool(DEVICE)
            assert pool.address(pool.take(MIB)) not in range(address, address + 2 * MIB)


def test_trimmed_memory_is_the_drivers_again():
    before = DEVICE.memory("managed").statistics()["in_use"]
    pool = gpu_pool(DEVICE, "managed", high=4 * MIB, low=0)
    handles = [pool.take(2 * MIB) for _ in range(4)]
    assert DEVICE.memory("managed").statistics()["in_use"] == before + 8 * MIB
    for handle in handles:
        pool.give(handle)
    assert DEVICE.memory("managed").statistics()["in_use"] <= before + 4 * MIB
    pool.trim()
    assert DEVICE.memory("managed").statistics()["in_use"] == before


def test_out_of_memory_of_the_driver_is_in_the_report():
    pool = gpu_pool(DEVICE)
    pool.take(1 << 16, tag="weights of 'conv'")
    with pytest.raises(OutOfMemory) as caught:
        pool.take(1 << 40, tag="the result of 'fft'")
    for part in (
        "hip:1 device memory cannot serve 1099511627776 bytes (1 TiB) for the result of 'fft'",
        "64 KiB  weights of 'conv'",
        "tried: another region: hip:1 cannot serve",
    ):
        assert part in str(caught.value)


def test_buffers_of_a_plan_on_a_device():
    pool = gpu_pool(DEVICE)
    stream = DEVICE.stream()
    with cupy.cuda.Device(1), BufferAllocations(PooledAllocator(pool), 3, names=["x", "y", "t"]) as buffers:
        buffers.accept(0, Donation(cupy.arange(8, dtype="f4")))
        buffers.allocate(2, 32, stream=stream)
        cupy.cuda.Stream.null.synchronize()  # arange is in that one
        stream.copy(buffers.array(2, 8, "f4"), buffers.array(0, 8, "f4"))
        buffers.reuse(1, 0, 32)
        stream.copy(buffers.array(1, 4, "f4"), buffers.array(2, 4, "f4", offset=16))
        kit.finish(stream)
        result = buffers.hand_over(1)
        with pytest.raises(DeviceError, match="donated"):
            buffers.slice(0, 0, 4)
        assert result.view("f4").get().tolist() == [4, 5, 6, 7, 4, 5, 6, 7]
        with pytest.raises(DeviceError, match="contiguous"):
            buffers.bind(0, cupy.zeros((4, 4))[:, ::2])
    pool.close()
