"""Memory spaces of a device: device, pinned and managed memory, counted, in stream order, by the user's allocator."""

import cupy
import numpy as np
import plait
import pytest
import rig
from plait import DeviceError, OutOfMemory
from plait.testing import conformance_kit as kit

DEVICE = plait.device("hip:1")


@pytest.mark.parametrize("space", ["device", "pinned", "managed"])
def test_each_space_allocates_aligned_counts_and_gives_back(space):
    allocator = DEVICE.memory(space)
    assert DEVICE.memory(space) is allocator
    before = allocator.statistics()
    held = [allocator.allocate(nbytes, alignment=a) for nbytes in (0, 1, 1000, 1 << 16) for a in (1, 64, 4096)]
    for block, alignment in zip(held, (1, 64, 4096) * 4, strict=True):
        if block.nbytes:
            assert block.address % alignment == 0
    array = held[-1].array((128, 128), "f4")
    assert isinstance(array, np.ndarray if space == "pinned" else cupy.ndarray)
    with cupy.cuda.Device(1):
        array[...] = 3
        assert float(array.sum()) == 3 * 128 * 128
    del array
    assert allocator.statistics()["in_use"] == before["in_use"] + sum(block.nbytes for block in held)
    for block in held:
        allocator.free(block)
    after = allocator.statistics()
    assert (after["in_use"], after["blocks"]) == (before["in_use"], before["blocks"])
    with pytest.raises(DeviceError, match="second time"):
        allocator.free(held[0])


def test_managed_memory_is_the_same_on_host_and_device():
    block = DEVICE.memory("managed").allocate(4096)
    there = block.array(512, "i8")
    with cupy.cuda.Device(1):
        there[...] = 7
        cupy.cuda.Stream.null.synchronize()
    here = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 512).from_address(block.address))
    assert (here == 7).all()
    DEVICE.memory("managed").free(block)


def test_memory_freed_behind_a_stream_is_in_use_until_the_stream_has_passed():
    stream, allocator = DEVICE.stream(), DEVICE.allocator
    before = allocator.statistics()["in_use"]
    block = allocator.allocate(1 << 12, stream=stream)
    array = block.array(512, "i8")
    stream.fill(array, 1)
    kit.finish(stream)
    with rig.held("compute", 1):
        stream.fill(array, 5)
        allocator.free(block, stream=stream)
        assert allocator.statistics()["in_use"] == before + (1 << 12)
    kit.finish(stream)
    kit.settle(stream.record())
    assert allocator.statistics()["in_use"] == before


def test_the_users_allocator_is_respected():
    asked = []

    def mine(nbytes):
        asked.append(nbytes)
        return cupy.cuda.memory._malloc(nbytes)

    cupy.cuda.set_allocator(mine)
    try:
        DEVICE.allocator.free(DEVICE.allocator.allocate(12_345))
        g = plait.Graph()
        g.output("y", g.options(device="hip:1").call(np.multiply, g.input("x"), 2))
        assert plait.run(g, x=np.ones(777))["y"].sum() == 2 * 777
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    assert 12_345 in asked
    assert asked.count(777 * 8) == 2


def test_out_of_memory_says_what_was_asked_and_what_there_is():
    with pytest.raises(OutOfMemory, match=r"hip:1 cannot serve 1099511627776 bytes of device memory.* bytes free"):
        DEVICE.allocator.allocate(1 << 40)
    with pytest.raises(DeviceError, match="device, pinned, managed"):
        DEVICE.memory("texture")


def test_managed_memory_is_brought_where_it_is_needed_and_advice_is_taken():
    stream, memory = DEVICE.stream(), DEVICE.memory("managed")
    block = memory.allocate(4096)
    array = block.array(512, "float64")
    with cupy.cuda.Device(1):
        array[...] = 7.0
    with rig.traced() as operations:
        block.prefetch(stream)
        block.prefetch(stream, to="host")
        kit.finish(stream)
    assert [each.nbytes for each in operations] == [4096, 4096]
    for advice in ("read mostly", "stay", "reached from", "not read mostly", "stay anywhere", "not reached from"):
        block.advise(advice)
        block.advise(advice, of="host")
    with cupy.cuda.Device(1):
        assert float(array.sum()) == 512 * 7.0
    empty, pinned = memory.allocate(0), DEVICE.memory("pinned").allocate(8)
    empty.prefetch(stream)
    memory.free(empty)
    with pytest.raises(DeviceError, match="'read mostly', 'not read mostly'"):
        block.advise("often")
    with pytest.raises(DeviceError, match="to 'device' or 'host', not 'disk'"):
        block.prefetch(stream, to="disk")
    with pytest.raises(DeviceError, match="only blocks of memory"):
        pinned.prefetch(stream)
    DEVICE.memory("pinned").free(pinned)
    rig.fail("hipMemPrefetchAsync", 1)
    with pytest.raises(DeviceError, match="managing pages"):
        block.prefetch(stream)
    rig.clear()
    memory.free(block)
    with pytest.raises(DeviceError, match="freed"):
        block.advise("stay")
