"""Copies from, to and between devices: every shape and stride, tiny chunks, engines held, faults, many threads."""

import threading

import cupy
import numpy as np
import pytest
import rig
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import DeviceError, DeviceLost
from plait.devices.gpu.copies import Copier, blocks, is_pinned
from plait.devices.gpu.staging import Ring

DTYPES = ("?", "i1", "i8", "f2", "f4", "c16")


def pinned(array):
    memory = cupy.cuda.alloc_pinned_memory(max(1, array.nbytes))
    found = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    found[...] = array
    return found


def stream(ordinal=0):
    with cupy.cuda.Device(ordinal):
        return cupy.cuda.Stream(non_blocking=True)


@st.composite
def views(draw):
    """An array of numbers and a function that takes the same view of any array of its shape."""
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    keys = tuple(
        slice(draw(st.integers(0, 2)), None, draw(st.sampled_from((1, 2, 3))))
        if draw(st.booleans())
        else slice(None, None, -1)
        for _ in shape
    )
    transposed = draw(st.booleans())

    def view(array):
        found = array[keys]
        return found.T if transposed else found

    numbers = (
        np.arange(int(np.prod(shape))).reshape(shape) % 2
        if dtype == "?"
        else np.arange(int(np.prod(shape))).reshape(shape)
    )
    return numbers.astype(dtype), view


@settings(max_examples=150, deadline=None)
@given(views(), st.booleans(), st.booleans(), st.booleans(), st.sampled_from((16, 64, 256)), st.integers(1, 4))
def test_every_view_arrives_as_it_was(source_view, strided_target, pin_source, pin_target, chunk_bytes, chunks):
    whole, view = source_view
    copier, peer = (Copier(k, f"hip:{k}", chunk_bytes=chunk_bytes, chunks=chunks) for k in (0, 1))
    source = view(pinned(whole) if pin_source else whole)
    there, beside = stream(0), stream(1)
    with cupy.cuda.Device(0), there:
        first = view(cupy.zeros(whole.shape, whole.dtype)) if strided_target else cupy.zeros(source.shape, whole.dtype)
        second = cupy.zeros_like(first)
    with cupy.cuda.Device(1), beside:
        third = view(cupy.zeros(whole.shape, whole.dtype)) if strided_target else cupy.zeros(source.shape, whole.dtype)
    target = np.zeros(source.shape, whole.dtype)
    target = pinned(target) if pin_target else target
    copier.copy_in(first, source, there)
    copier.copy_within(second, first, there)
    beside.wait_event(there.record())
    peer.copy_peer(third, first, beside)
    copies = [copier.copy_out(target, second, there), peer.copy_out(back := np.empty_like(target), third, beside)]
    for copy in copies:
        copy.finish()
    assert np.array_equal(target, source)
    assert np.array_equal(back, source)
    copier.close()
    peer.close()


def test_without_peer_access_bytes_go_through_the_host(monkeypatch):
    monkeypatch.setattr(Copier, "_reaches", lambda self, peer: False)
    copier, here = Copier(0, "hip:0", chunk_bytes=64), stream(0)
    with cupy.cuda.Device(1):
        source = cupy.arange(1000.0)[::3]
        cupy.cuda.Stream.null.synchronize()
    with cupy.cuda.Device(0):
        target = cupy.zeros(334)
        cupy.cuda.Stream.null.synchronize()
    copier.copy_peer(target, source, here)
    here.synchronize()
    assert target.get().tolist() == np.arange(1000.0)[::3].tolist()


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(1, 50))
def test_blocks_follow_each_other_and_hold_everything(shape, limit):
    array, at = np.arange(int(np.prod(shape))).reshape(shape), 0
    for start, index in blocks(tuple(shape), limit):
        part = array[index]
        assert start == at
        assert part.size <= limit
        assert part.ravel().tolist() == list(range(start, start + part.size))
        at += part.size
    assert at == array.size


def test_a_pageable_source_may_change_once_the_call_returns():
    """With the engine held, all that fits into the ring has been read and not yet copied."""
    copier, there = Copier(0, "hip:0", chunk_bytes=1024, chunks=4), stream()
    source = np.arange(512, dtype="i8")  # 4096 bytes: the whole ring
    with there:
        target = cupy.zeros(512, "i8")
    there.synchronize()
    with rig.held("h2d"):
        copier.copy_in(target, source, there)
        source[...] = -1
    there.synchronize()
    assert target.get().tolist() == list(range(512))


def test_the_ring_is_bounded_and_a_chunk_waits_for_the_copy_that_uses_it():
    copier, there = Copier(0, "hip:0", chunk_bytes=1024, chunks=2), stream()
    source = np.arange(4096, dtype="i8")
    with there:
        target = cupy.zeros(4096, "i8")
    there.synchronize()
    done = threading.Event()

    def copy():
        copier.copy_in(target, source, there)
        done.set()

    with rig.held("h2d"):
        thread = threading.Thread(target=copy)
        thread.start()
        rig.wait_until_queued("h2d")
        assert not done.is_set(), "it cannot have read 32 KiB through 2 KiB"
    thread.join(30)
    assert done.is_set()
    there.synchronize()
    assert np.array_equal(target.get(), source)


def test_copies_out_begun_by_many_threads_through_one_chunk_all_end():
    copier = Copier(0, "hip:0", chunk_bytes=64, chunks=1)
    arrays = []
    for k in range(6):
        with cupy.cuda.Device(0):
            arrays.append(cupy.full(500, k, "i8"))
    cupy.cuda.Stream.null.synchronize()
    targets = [[np.empty(500, "i8") for _ in range(3)] for _ in arrays]

    def copy(array, mine):
        own = stream()
        for out in [copier.copy_out(target, array, own) for target in mine]:
            out.finish()

    threads = [threading.Thread(target=copy, args=pair) for pair in zip(arrays, targets, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for k, mine in enumerate(targets):
        assert all((target == k).all() for target in mine)


@pytest.mark.parametrize("way", ["in", "out"])
@pytest.mark.parametrize("fault", ["call", "async"])
def test_a_copy_that_fails_says_so_and_loses_no_chunk(way, fault):
    copier, there = Copier(0, "hip:0", chunk_bytes=64, chunks=2), stream()
    source, target = np.arange(100, dtype="i8"), np.zeros(100, "i8")
    with there:
        array = cupy.zeros(100, "i8")
    there.synchronize()
    if fault == "call":
        rig.fail("hipMemcpyAsync", rig.ILLEGAL_ADDRESS)
    else:
        rig.fail_async("copy", rig.ILLEGAL_ADDRESS)
    with pytest.raises(DeviceLost, match="hip:0"):
        if way == "in":
            copier.copy_in(array, source, there)
            there.synchronize() if fault == "call" else copier.copy_out(target, array, there).finish()
        else:
            copier.copy_out(target, array, there).finish()
    rig.clear()
    for _ in range(5):
        copier.copy_in(array, source, there)
        copier.copy_out(target, array, there).finish()
    assert np.array_equal(target, source)


def test_what_does_not_fit_is_refused_at_once():
    copier, there = Copier(0, "hip:0"), stream()
    with there:
        array = cupy.zeros((4, 4), "f4")
    for source in (np.zeros((4, 5), "f4"), np.zeros(16, "f4"), np.zeros((4, 4), "f8")):
        with pytest.raises(DeviceError, match=r"the target is \(4, 4\) float32, the source"):
            copier.copy_in(array, source, there)
    frozen = np.zeros((4, 4), "f4")
    frozen.flags.writeable = False
    copier.copy_in(array, frozen, there)
    with pytest.raises(DeviceError, match="read-only"):
        copier.copy_out(frozen, array, there)


def test_device_and_stream_are_as_before():
    copier, there = Copier(1, "hip:1", chunk_bytes=64), stream(1)
    with cupy.cuda.Device(1), there:
        array = cupy.zeros((20, 3), "f4")[::2]
    mine = stream(0)
    with cupy.cuda.Device(0), mine:
        copier.copy_in(array, np.ones((10, 3), "f4"), there)
        copier.copy_out(np.empty((10, 3), "f4"), array, there).finish()
        with pytest.raises(DeviceError):
            copier.copy_in(array, np.ones(3, "f4"), there)
        assert cupy.cuda.runtime.getDevice() == 0
        assert cupy.cuda.get_current_stream().ptr == mine.ptr


def test_pinned_memory_is_known_by_its_owner():
    memory = pinned(np.arange(12.0))
    assert is_pinned(memory)
    assert is_pinned(memory.reshape(3, 4)[1:, ::2])
    assert not is_pinned(np.arange(12.0)[::2])
    assert not is_pinned(np.frombuffer(b"12345678", "i1"))


def test_a_ring_makes_no_more_chunks_than_it_may():
    ring = Ring(64, 3)
    taken = [ring.take() for _ in range(3)]
    assert ring.take_nowait() is None
    ring.give(taken[0])
    assert ring.take() is taken[0]
    for chunk in taken:
        ring.give(chunk)
    ring.give(ring.extra())
    assert {id(ring.take()) for _ in range(3)} == {id(chunk) for chunk in taken}
