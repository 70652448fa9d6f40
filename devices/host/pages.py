"""Pages straight from the system: page aligned, huge where the system has them, bound to a NUMA node if asked for."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import sys
from typing import Any

import numpy as np

HUGE_PAGE = 2 << 20  # bytes; x86's, and the common one elsewhere
_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235}  # the system call's number
_BIND = 2  # MPOL_BIND: these nodes only


def pages(nbytes: int, *, huge: bool = False, node: int | None = None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """``nbytes`` zero bytes on pages of their own, uint8, shape (nbytes,); the pages go when the array does.

    ``huge`` asks the system for huge pages (``madvise``), and starts at a multiple of one. ``node`` binds the pages to
    a NUMA node. Both are wishes: where the system knows neither, the pages are ordinary ones, placed by first touch.
    MemoryError or OSError if there is no memory.
    """
    length = max(mmap.PAGESIZE, nbytes + (HUGE_PAGE if huge else 0))
    mapped = _map(length)
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapped.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel built without them
            huge = False
    array = np.frombuffer(mapped, np.uint8)
    if node is not None:
        bind(int(array.ctypes.data), length, node)
    start = -int(array.ctypes.data) % HUGE_PAGE if huge else 0
    return array[start : start + nbytes]


def bind(address: int, nbytes: int, node: int) -> bool:
    """Bind untouched pages to a NUMA node (Linux ``mbind``); whether the system did."""
    number = _MBIND.get(platform.machine())
    if number is None or not sys.platform.startswith("linux"):
        return False
    words = node // _WORD + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // _WORD] = 1 << node % _WORD
    call = _system_call()
    return bool(call(number, address, nbytes, _BIND, ctypes.addressof(mask), words * _WORD + 1, 0) == 0)


_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)


@functools.cache
def _system_call() -> Any:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = [ctypes.c_long, *[ctypes.c_ulong] * 2, ctypes.c_long, *[ctypes.c_ulong] * 3]
    call.restype = ctypes.c_long
    return call


def _map(length: int) -> mmap.mmap:
    if os.name == "nt":
        return mmap.mmap(-1, length)
    # Private, for the pages of shared ones are never huge.
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
