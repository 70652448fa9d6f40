"""Conformance of platforms, descriptions, memory, and the copies between arrays."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from plait.devices.protocol import Allocator, Block, Device, Platform
from plait.errors import DeviceError, OutOfMemory
from plait.testing import conformance_kit as kit


def device_array(device: Device, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
    """An array in the device's memory, all bytes 0."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = device.allocator.allocate(nbytes).array(shape, dtype)
    stream = device.stream()
    stream.fill(array, 0)
    kit.finish(stream)
    return array


def on_host(device: Device, array: Any) -> np.ndarray[Any, Any]:
    """The array's contents, copied by a stream."""
    contents = np.empty(array.shape, array.dtype)
    stream = device.stream(kind="copy")
    stream.copy(contents, array)
    kit.finish(stream)
    return contents


def test_platform_lists_the_same_devices_every_time(platform: Platform) -> None:
    assert isinstance(platform, Platform)
    assert platform.absent is None
    devices = platform.devices()
    assert devices
    for ordinal, (device, again) in enumerate(zip(devices, platform.devices(), strict=True)):
        assert device is again
        assert isinstance(device, Device)
        assert device.ordinal == ordinal
        assert device.platform == platform.name
        assert device.name in (platform.name, f"{platform.name}:{ordinal}")


def test_description_survives_json(platform: Platform) -> None:
    for device in platform.devices():
        description = device.description
        text = description.to_json()
        assert isinstance(text, str)
        assert type(description).from_json(text) == description
        assert device.description == description


def test_copy_there_and_back(platform: Platform) -> None:
    device = platform.devices()[0]
    source = np.arange(1000, dtype=np.float32).reshape(10, 100)
    array = device_array(device, (10, 100))
    stream = device.stream(kind="copy")
    stream.copy(array, source)
    kit.finish(stream)
    assert np.array_equal(on_host(device, array), source)


def test_copy_keeps_its_place_in_the_stream(platform: Platform) -> None:
    device, gate = platform.devices()[0], kit.Gate()
    source, array = np.zeros(16, np.int64), device_array(device, 16, np.int64)
    stream = device.stream()
    stream.wait(gate)
    stream.enqueue(source.fill, 5)
    stream.copy(array, source)
    stream.enqueue(source.fill, 6)
    gate.open()
    kit.finish(stream)
    assert on_host(device, array).tolist() == [5] * 16


def test_copy_and_fill_of_strided_arrays(platform: Platform) -> None:
    device = platform.devices()[0]
    source = np.arange(96, dtype=np.int32).reshape(8, 12)
    array = device_array(device, (8, 12), np.int32)
    stream, expected = device.stream(), np.zeros((8, 12), np.int32)
    stream.copy(array[::2, 1::3], source[1::2, ::-3])
    stream.fill(array[1::2, ::-2], 7)
    kit.finish(stream)
    expected[::2, 1::3] = source[1::2, ::-3]
    expected[1::2, ::-2] = 7
    assert np.array_equal(on_host(device, array), expected)


def test_copy_of_nothing_and_of_a_scalar(platform: Platform) -> None:
    device, stream = platform.devices()[0], platform.devices()[0].stream()
    empty, scalar = device_array(device, (0, 3)), device_array(device, (), np.float64)
    stream.copy(empty, np.empty((0, 3), np.float32))
    stream.fill(empty, 1)
    stream.copy(scalar, np.array(2.5))
    kit.finish(stream)
    assert on_host(device, scalar) == 2.5


def test_copy_that_does_not_match_is_refused_at_once(platform: Platform) -> None:
    device, stream = platform.devices()[0], platform.devices()[0].stream()
    array = device_array(device, (4, 4))
    for source in (
        np.zeros((4, 5), np.float32),
        np.zeros(16, np.float32),
        np.zeros((1, 4), np.float32),
        np.zeros((4, 4), np.float64),
    ):
        with pytest.raises(DeviceError):
            stream.copy(array, source)
    kit.finish(stream)
    assert not on_host(device, array).any()


def test_fill_sets_every_element(platform: Platform) -> None:
    device, stream = platform.devices()[0], platform.devices()[0].stream()
    for dtype, value in (
        (np.uint8, 255),
        (np.float32, -1.5),
        (np.int64, 1 << 40),
        (np.complex64, 1j),
        (bool, True),
    ):
        array = device_array(device, 33, dtype)
        stream.fill(array, value)
        kit.finish(stream)
        assert np.array_equal(on_host(device, array), np.full(33, value, dtype))
    with pytest.raises(DeviceError):
        stream.fill(device_array(device, 8, np.int32), "seven")
    kit.finish(stream)


def test_blocks_are_aligned_and_apart(platform: Platform) -> None:
    allocator = platform.devices()[0].allocator
    assert isinstance(allocator, Allocator)
    blocks: list[Block] = []
    for alignment in (1, 2, 16, 64, 256, 4096):
        for nbytes in (1, 63, 1000, 70_000):
            block = allocator.allocate(nbytes, alignment=alignment)
            assert isinstance(block, Block)
            assert block.nbytes == nbytes
            assert block.address % alignment == 0
            blocks.append(block)
    assert allocator.allocate(10).address % 64 == 0
    ends = sorted((block.address, block.address + block.nbytes) for block in blocks)
    apart = [end <= start for (_, end), (start, _) in itertools.pairwise(ends)]
    assert all(apart), "two blocks overlap"
    for block in blocks:
        allocator.free(block)


def test_zero_bytes_are_legal(platform: Platform) -> None:
    allocator = platform.devices()[0].allocator
    block = allocator.allocate(0)
    assert block.nbytes == 0
    assert block.array((0,), np.float32).shape == (0,)
    allocator.free(block)


def test_wrong_requests_are_refused(platform: Platform) -> None:
    allocator = platform.devices()[0].allocator
    for nbytes, alignment in ((-1, 64), (64, 0), (64, 48), (64, -64)):
        with pytest.raises(DeviceError):
            allocator.allocate(nbytes, alignment=alignment)
    block = allocator.allocate(64)
    with pytest.raises(DeviceError):
        block.array(17, np.float32)
    allocator.free(block)


def test_a_block_is_freed_once_and_where_it_came_from(platform: Platform) -> None:
    allocator = platform.devices()[0].allocator
    block = allocator.allocate(128)
    allocator.free(block)
    before = allocator.statistics()["in_use"]
    with pytest.raises(DeviceError):
        allocator.free(block)
    with pytest.raises(DeviceError):
        allocator.free(object())  # type: ignore[arg-type]
    assert allocator.statistics()["in_use"] == before


def test_statistics_count_what_happens(platform: Platform) -> None:
    allocator = platform.devices()[0].allocator
    before = allocator.statistics()
    nbytes = before["largest"] + 4096
    first, second = allocator.allocate(nbytes), allocator.allocate(256)
    during = allocator.statistics()
    allocator.free(first)
    allocator.free(second)
    after = allocator.statistics()
    assert during["allocations"] == before["allocations"] + 2
    assert during["blocks"] == before["blocks"] + 2
    assert during["in_use"] >= before["in_use"] + nbytes + 256
    assert during["largest"] >= nbytes
    assert during["peak"] >= during["in_use"]
    assert after["in_use"] == before["in_use"]
    assert after["blocks"] == before["blocks"]
    assert after["peak"] == during["peak"]
    assert during["allocations"] == after["allocations"], "freeing is no allocation"


def test_out_of_memory_says_what_was_asked_and_what_there_is(platform: Platform) -> None:
    allocator = platform.devices()[0].allocator
    block = allocator.allocate(4096)
    before = allocator.statistics()
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(1 << 60)
    assert str(1 << 60) in str(caught.value)
    assert str(before["in_use"]) in str(caught.value)
    assert allocator.statistics()["in_use"] == before["in_use"], "a refused request must not count"
    allocator.free(block)


def test_free_behind_a_stream_outlives_its_work(platform: Platform) -> None:
    device, gate = platform.devices()[0], kit.Gate()
    before = device.allocator.statistics()["in_use"]
    block = device.allocator.allocate(1 << 16)
    array, contents = block.array(1 << 16, np.uint8), np.zeros(1 << 16, np.uint8)
    stream = device.stream()
    stream.wait(gate)
    stream.fill(array, 9)
    stream.copy(contents, array)
    device.allocator.free(block, stream=stream)
    with pytest.raises(DeviceError):
        device.allocator.free(block)
    gate.open()
    kit.finish(stream)
    assert (contents == 9).all()
    kit.settle(stream.record())
    assert device.allocator.statistics()["in_use"] == before


def test_several_threads_allocate(platform: Platform) -> None:
    allocator, start = platform.devices()[0].allocator, threading.Barrier(4)
    before = allocator.statistics()

    def churn() -> None:
        start.wait(kit.TIMEOUT_S)
        for nbytes in range(200):
            allocator.free(allocator.allocate(nbytes))

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = allocator.statistics()
    assert after["allocations"] == before["allocations"] + 800
    assert (after["in_use"], after["blocks"]) == (before["in_use"], before["blocks"])
