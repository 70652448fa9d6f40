"""The rig's memory: device, pinned, pageable, managed, of a peer, of another process."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import threading
from typing import Any

import cupy
import numpy as np
import pytest
import rig
from numpy.testing import assert_array_equal
from rig_kit import ADD, add, launch, number, pinned, runtime, stream

COPY_KIND = 4  # the runtime finds out itself
POISON = 0xCD
PAGE = 4096
WAIT = 30

OPEN_IN_CHILD = """
import sys, cupy
pointer = cupy.cuda.runtime.ipcOpenMemHandle(bytes.fromhex(sys.argv[1]))
memory = cupy.cuda.UnownedMemory(pointer, 64, None)
array = cupy.ndarray(16, "i4", cupy.cuda.MemoryPointer(memory, 0))
found = array.get()
array.set(found * 2)
cupy.cuda.Device().synchronize()
cupy.cuda.runtime.ipcCloseMemHandle(pointer)
print(found.tolist())
"""

PAGEABLE_IN_CHILD = """
import cupy, numpy, rig
target, on = cupy.empty(4, "i4"), cupy.cuda.Stream(non_blocking=True)
source = numpy.arange(4, dtype="i4")
with rig.held("h2d"):
    target.set(source, stream=on)
    source[:] = -1
    assert not on.done
on.synchronize()
print(target.get().tolist())
"""


def copy(to: int, source: int, size: int, on: Any) -> None:
    runtime.memcpyAsync(to, source, size, COPY_KIND, on.ptr)


def number_at(pointer: int) -> Any:
    memory = cupy.cuda.UnownedMemory(pointer, 4, None, 0)
    return cupy.ndarray(1, "i4", cupy.cuda.MemoryPointer(memory, 0))


def child(code: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    given = rig.command_environment() | {"PYTHONPATH": str(rig.HERE)} | environment
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_copies_there_and_back() -> None:
    source, back, target, on = pinned(1000, "f8"), pinned(1000, "f8"), cupy.empty(1000), stream()
    source[:] = np.random.default_rng(1).random(1000)
    target.set(source, stream=on)
    target.get(stream=on, out=back, blocking=False)
    on.synchronize()
    assert_array_equal(back, source)


def test_copies_from_pinned_memory_leave_the_caller_free() -> None:
    source, target, on = pinned(64), cupy.empty(64, "u1"), stream()
    with rig.held("h2d"):
        target.set(source, stream=on)
        source[:] = 7  # the copy comes later, and sees it
        assert not on.done
    on.synchronize()
    assert_array_equal(target.get(), source)


@pytest.mark.parametrize("engine", ["h2d", "d2h"])
def test_copies_of_pageable_memory_wait(engine: str) -> None:
    host, device, on, returned = np.zeros(64, "u1"), cupy.empty(64, "u1"), stream(), threading.Event()
    device.set(np.arange(64, dtype="u1"))
    ends = (device.data.ptr, host.ctypes.data) if engine == "h2d" else (host.ctypes.data, device.data.ptr)

    def work() -> None:
        copy(*ends, 64, on)
        returned.set()

    worker = threading.Thread(target=work)
    with rig.held(engine):
        worker.start()
        rig.wait_until_queued(engine)
        assert not returned.is_set()
    assert returned.wait(WAIT)
    worker.join()
    assert on.done
    assert_array_equal(host, device.get())


def test_pageable_memory_may_be_staged_instead() -> None:
    assert child(PAGEABLE_IN_CHILD, HIPCPU_PAGEABLE="async") == "[0, 1, 2, 3]"


def test_what_the_runtime_says_of_addresses() -> None:
    managed = cupy.cuda.malloc_managed(64)
    with cupy.cuda.Device(1):
        other = cupy.empty(4)
    host = np.zeros(4)
    assert runtime.pointerGetAttributes(other.data.ptr + 8).device == 1
    assert runtime.pointerGetAttributes(host.ctypes.data).device == -2
    kinds = [runtime.pointerGetAttributes(p).type for p in (managed.ptr, other.data.ptr, pinned(8).ctypes.data)]
    assert len(set(kinds)) >= 2  # CuPy maps the numbers of HIP wrongly since HIP 6


def test_managed_memory_is_the_same_on_both_sides() -> None:
    memory, on = cupy.cuda.malloc_managed(64), stream()
    x = cupy.ndarray(1, "i4", memory)
    on_host = ctypes.cast(memory.ptr, ctypes.POINTER(ctypes.c_int))
    on_host[0] = 41
    memory.mem.prefetch(on)
    add(on, x)
    on.synchronize()
    assert on_host[0] == 42


def test_copies_between_devices() -> None:
    source = number(0, 42)
    with cupy.cuda.Device(1):
        target, on = number(1), stream()
        target.data.copy_from_device_async(source.data, 4, on)
        on.synchronize()
    assert int(target.get()[0]) == 42


def test_peer_access_is_given_once() -> None:
    assert runtime.deviceCanAccessPeer(0, 1)
    assert not runtime.deviceCanAccessPeer(0, 0)
    with contextlib.suppress(runtime.CUDARuntimeError):  # CuPy gives it as well
        runtime.deviceEnablePeerAccess(1)
    with pytest.raises(runtime.CUDARuntimeError, match="PeerAccessAlreadyEnabled"):
        runtime.deviceEnablePeerAccess(1)
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidDevice"):
        runtime.deviceEnablePeerAccess(0)


def test_memory_shared_with_another_process() -> None:
    pointer = runtime.malloc(64)
    shared = cupy.ndarray(16, "i4", cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(pointer, 64, None), 0))
    shared.set(np.arange(16, dtype="i4"))
    assert child(OPEN_IN_CHILD, runtime.ipcGetMemHandle(pointer).hex()) == str(list(range(16)))
    assert_array_equal(shared.get(), 2 * np.arange(16))
    runtime.free(pointer)


def test_new_memory_is_poisoned() -> None:
    pointer, found = runtime.malloc(1000), np.zeros(1000, "u1")
    runtime.memcpy(found.ctypes.data, pointer, 1000, COPY_KIND)
    runtime.free(pointer)
    assert set(found.tolist()) == {POISON}


def test_device_memory_is_counted_and_runs_out() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    free, total = runtime.memGetInfo()
    pointers = [runtime.malloc(size) for size in (1, 512, 1 << 20, 3 << 20)]
    assert runtime.memGetInfo() == (free - 2 * PAGE - (4 << 20), total)
    with pytest.raises(runtime.CUDARuntimeError, match="OutOfMemory"):
        runtime.malloc(total)
    for pointer in pointers:
        runtime.free(pointer)
    assert runtime.memGetInfo() == (free, total)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_freed_neighbours_grow_together(order: tuple[int, ...]) -> None:
    size = 1 << 20
    made = [runtime.malloc(size) for _ in range(3)]
    while made[-1] - made[-2] != size + PAGE or made[-2] - made[-3] != size + PAGE:
        made.append(runtime.malloc(size))  # fills the holes that other tests left
    for which in order:
        runtime.free(made[which - 3])
    whole = runtime.malloc(3 * size)
    assert whole == made[-3]
    for pointer in (whole, *made[:-3]):
        runtime.free(pointer)


def test_copies_past_the_end_are_refused() -> None:
    pointer, host = runtime.malloc(64), pinned(128)
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
        copy(pointer, host.ctypes.data, 65, stream())
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
        runtime.free(pointer + 8)
    runtime.free(pointer)


def test_fill() -> None:
    x, on = cupy.empty(100, "u1"), stream()
    runtime.memsetAsync(x.data.ptr, 3, 100, on.ptr)
    on.synchronize()
    assert x.get().tolist() == [3] * 100


def test_freed_memory_is_a_bad_address() -> None:
    on, pointer = stream(), runtime.malloc(64)
    x = number_at(pointer)
    runtime.free(pointer)
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
        copy(pointer, pinned(4).ctypes.data, 4, on)
    launch(ADD, on, x, 1)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        on.synchronize()


def test_a_page_behind_an_allocation_is_a_bad_address() -> None:
    on, pointer = stream(), runtime.malloc(PAGE)
    launch(ADD, on, number_at(pointer + PAGE), 1)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        on.synchronize()
    rig.clear()
    runtime.free(pointer)


def test_a_copy_from_an_address_that_is_not_mapped_loses_the_device() -> None:
    pointer = runtime.malloc(64)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        copy(pointer, 8, 4, stream())
    rig.clear()
    runtime.free(pointer)


def test_pinned_memory_is_poisoned_too() -> None:
    pointer = runtime.hostAlloc(64, 0)
    assert set(ctypes.string_at(pointer, 64)) == {POISON}
    runtime.freeHost(pointer)


def test_freeing_waits_for_the_device() -> None:
    pointer, on, x, freed = runtime.malloc(64), stream(), number(), threading.Event()

    def free() -> None:
        runtime.free(pointer)
        freed.set()

    worker = threading.Thread(target=free)
    with rig.held("compute"):
        add(on, x)
        rig.wait_until_queued("compute")
        worker.start()
        assert not freed.is_set()
        assert not on.done
    assert freed.wait(WAIT)
    worker.join()
    assert on.done


def test_memory_can_be_made_scarce() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    free, total = runtime.memGetInfo()
    used = -(-(total - free) // (1 << 20))
    rig.set_memory_mb(used + 4, 0)
    assert runtime.memGetInfo()[1] == (used + 4) << 20
    with pytest.raises(runtime.CUDARuntimeError, match="OutOfMemory"):
        runtime.malloc(5 << 20)
    with cupy.cuda.Device(1):
        runtime.free(runtime.malloc(5 << 20))
    rig.set_memory_mb(total >> 20)
    runtime.free(runtime.malloc(5 << 20))
