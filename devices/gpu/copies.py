"""Copies from, to and between GPUs: pageable memory through pinned chunks, pinned memory directly, views packed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from plait.devices.gpu import driver
from plait.devices.gpu.staging import CHUNK_BYTES, CHUNKS, Chunk, Ring
from plait.errors import DeviceError

_IN, _OUT, _WITHIN = 1, 2, 3  # the runtime's kinds of copies
_PEER_ACCESS_IS_ON = 704
Index = tuple[Any, ...]


class Copier:
    """Copies of one device. Methods may block, so they are for worker threads; any number of threads at once.

    Arrays must agree in shape and dtype, else DeviceError at once. ``stream`` is a ``cupy.cuda.Stream`` of the device.
    The caller's device and stream are as before after every call. What CuPy raises comes out as a plait error.
    """

    def __init__(self, ordinal: int, name: str, *, chunk_bytes: int = CHUNK_BYTES, chunks: int = CHUNKS) -> None:
        self.ordinal = ordinal
        self.name = name
        self._in = Ring(chunk_bytes, chunks)
        self._out = Ring(chunk_bytes, chunks)
        self._peers: dict[int, bool] = {}

    def copy_in(self, target: Any, source: np.ndarray[Any, Any], stream: Any) -> None:
        """Enqueue ``target[...] = source``, from the host.

        Pageable memory has been read on return and may change; pinned memory (CuPy's) is read later, and the caller
        keeps it as it is until the stream has passed.
        """
        self._check(target, source, "in")
        with _Translated(self, stream, "copying in"):
            if not target.size:
                return
            packed = target if target.flags.c_contiguous else driver.cupy().empty(target.shape, target.dtype)
            flat = source.reshape(-1) if source.flags.c_contiguous else source
            if source.flags.c_contiguous and is_pinned(source):
                driver.runtime().memcpyAsync(packed.data.ptr, source.ctypes.data, source.nbytes, _IN, stream.ptr)
            else:
                self._stage_in(packed.data.ptr, flat, stream)
            if packed is not target:
                target[...] = packed

    def copy_out(self, target: np.ndarray[Any, Any], source: Any, stream: Any) -> OutCopy:
        """Begin ``target[...] = source``, to the host: as much as there is room for is enqueued without blocking.

        ``finish()`` of what is returned blocks until all bytes are there.
        """
        self._check(target, source, "out")
        if not target.flags.writeable:
            raise DeviceError(f"copying out of {self.name}: the target is read-only")
        with _Translated(self, stream, "copying out"):
            if int(source.device.id) != self.ordinal:
                source = self._packed_there(source, stream)
            packed = source if source.flags.c_contiguous else driver.cupy().ascontiguousarray(source)
            return OutCopy(self, target, packed, stream, self._out)

    def copy_within(self, target: Any, source: Any, stream: Any) -> None:
        """Enqueue ``target[...] = source`` between arrays of this device."""
        self._check(target, source, "within")
        with _Translated(self, stream, "copying within"):
            if target.flags.c_contiguous and source.flags.c_contiguous:
                if target.size:
                    driver.runtime().memcpyAsync(target.data.ptr, source.data.ptr, target.nbytes, _WITHIN, stream.ptr)
            else:
                target[...] = source

    def copy_peer(self, target: Any, source: Any, stream: Any) -> None:
        """Enqueue ``target[...] = source`` from another device, which ``stream`` already waits for.

        Directly where the two devices can reach each other, else through the host, which blocks.
        """
        self._check(target, source, "from a peer")
        peer = int(source.device.id)
        if not target.size:
            return
        if not self._reaches(peer):
            contents = np.empty(source.shape, source.dtype)
            self.copy_out(contents, source, stream).finish()
            self.copy_in(target, contents, stream)
            return
        with _Translated(self, stream, f"copying from device {peer}"):
            there = source if source.flags.c_contiguous else self._packed_there(source, stream)
            packed = target if target.flags.c_contiguous else driver.cupy().empty(target.shape, target.dtype)
            driver.runtime().memcpyPeerAsync(
                packed.data.ptr, self.ordinal, there.data.ptr, peer, target.nbytes, stream.ptr
            )
            if packed is not target:
                target[...] = packed
            if there is not source:
                self._hold(there, peer, stream)

    def close(self) -> None:
        """Let go of the pinned chunks."""
        self._in.close()
        self._out.close()

    def _stage_in(self, pointer: int, source: np.ndarray[Any, Any], stream: Any) -> None:
        ring, itemsize = self._in, source.dtype.itemsize
        source = _divisible(source, ring.chunk_bytes)
        itemsize = source.dtype.itemsize
        for start, index in blocks(source.shape, ring.chunk_bytes // itemsize):
            part = source[index]
            chunk = ring.take()
            try:
                np.copyto(chunk.bytes[: part.nbytes].view(source.dtype).reshape(part.shape), part)
                driver.runtime().memcpyAsync(pointer + start * itemsize, chunk.pointer, part.nbytes, _IN, stream.ptr)
                chunk.event = recorded(stream)
            finally:
                ring.give(chunk)

    def _packed_there(self, source: Any, stream: Any) -> Any:
        """A contiguous copy of another device's array, made there; ``stream`` waits for it."""
        cupy = driver.cupy()
        behind = recorded(stream)
        with source.device:
            side = cupy.cuda.Stream(non_blocking=True)
            side.wait_event(behind)
            with side:
                packed = source.copy(order="C")
            made = recorded(side)
        stream.wait_event(made)
        return packed

    def _hold(self, packed: Any, peer: int, stream: Any) -> None:
        """Give a temporary of another device back to that device's pool only behind what ``stream`` reads of it."""
        passed = recorded(stream)
        with packed.device:
            driver.runtime().eventSynchronize(passed.ptr)
        del peer

    def _reaches(self, peer: int) -> bool:
        """Whether this device can read the other's memory; access is switched on at the first question."""
        known = self._peers.get(peer)
        if known is None:
            runtime = driver.runtime()
            before = runtime.getDevice()
            try:
                runtime.setDevice(self.ordinal)
                known = bool(runtime.deviceCanAccessPeer(self.ordinal, peer))
                if known:
                    runtime.deviceEnablePeerAccess(peer)
            except runtime.CUDARuntimeError as error:
                known = error.status == _PEER_ACCESS_IS_ON
            finally:
                runtime.setDevice(before)
            self._peers[peer] = known
        return known

    def _check(self, target: Any, source: Any, way: str) -> None:
        if target.shape != source.shape or target.dtype != source.dtype:
            raise DeviceError(
                f"copying {way} on {self.name}: the target is {target.shape} {target.dtype}, "
                f"the source {source.shape} {source.dtype}"
            )


class OutCopy:
    """A copy to the host under way: the chunks that are enqueued, and the blocks that are not yet."""

    def __init__(self, copier: Copier, target: np.ndarray[Any, Any], source: Any, stream: Any, ring: Ring) -> None:
        self._copier = copier
        self._source = source  # kept: its bytes are read until the last block is here
        self._stream = stream
        self._ring = ring
        self._under_way: deque[tuple[Chunk, Index, int]] = deque()
        self._direct: Any = None
        self._target = target
        self._blocks: Iterator[tuple[int, Index]] = iter(())
        self._next: tuple[int, Index] | None = None
        if not target.size:
            return
        if target.flags.c_contiguous and is_pinned(target):
            driver.runtime().memcpyAsync(target.ctypes.data, source.data.ptr, target.nbytes, _OUT, stream.ptr)
            self._direct = recorded(stream)
            return
        flat = target.reshape(-1) if target.flags.c_contiguous else target
        self._target = _divisible(flat, ring.chunk_bytes)
        self._blocks = blocks(self._target.shape, ring.chunk_bytes // self._target.dtype.itemsize)
        self._next = next(self._blocks, None)
        while self._next is not None and (chunk := ring.take_nowait()) is not None:
            self._enqueue(chunk)

    def finish(self) -> None:
        """Block, with the GIL released, until all bytes are in the target; the plait error of a failed device."""
        with _Translated(self._copier, self._stream, "copying out"):
            try:
                if self._direct is not None:
                    driver.runtime().eventSynchronize(self._direct.ptr)
                while self._under_way or self._next is not None:
                    if not self._under_way:
                        self._enqueue(self._ring.take_nowait() or self._ring.extra())
                    self._drain_one()
            finally:
                while self._under_way:
                    self._ring.give(self._under_way.popleft()[0])
                self._source = None

    def _enqueue(self, chunk: Chunk) -> None:
        assert self._next is not None
        start, index = self._next
        itemsize = self._target.dtype.itemsize
        count = self._target[index].size
        self._under_way.append((chunk, index, count))
        pointer = self._source.data.ptr + start * itemsize
        driver.runtime().memcpyAsync(chunk.pointer, pointer, count * itemsize, _OUT, self._stream.ptr)
        chunk.event = recorded(self._stream)
        self._next = next(self._blocks, None)

    def _drain_one(self) -> None:
        chunk, index, count = self._under_way[0]
        chunk.wait()
        part = self._target[index]
        part[...] = chunk.bytes[: count * part.dtype.itemsize].view(part.dtype).reshape(part.shape)
        self._under_way.popleft()
        if self._next is not None:
            self._enqueue(chunk)
        else:
            self._ring.give(chunk)


class _Translated:
    """Device and stream current inside; CuPy's errors come out as plait's."""

    def __init__(self, copier: Copier, stream: Any, doing: str) -> None:
        self._copier = copier
        self._stream = stream
        self._doing = doing
        self._before = 0

    def __enter__(self) -> None:
        runtime = driver.runtime()
        self._before = runtime.getDevice()
        try:
            runtime.setDevice(self._copier.ordinal)
        except Exception as error:
            raise driver.translated(error, self._copier.name, self._doing) from error
        self._stream.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._stream.__exit__(None, None, None)
        driver.runtime().setDevice(self._before)
        if isinstance(error, Exception):
            found = driver.translated(error, self._copier.name, self._doing)
            if found is not error:
                raise found from error


def recorded(stream: Any) -> Any:
    """A driver event behind what ``stream`` holds now; its device must be current."""
    event = driver.event_class()(True, True)
    event.record(stream)
    return event


def is_pinned(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array lies in page-locked memory of CuPy's: found by its owner, since a driver's answer cannot be
    trusted on every platform.
    """
    owner: Any = array
    while True:
        inner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        if inner is None:
            return isinstance(owner, driver.cupy().cuda.PinnedMemoryPointer)
        owner = inner


def blocks(shape: tuple[int, ...], limit: int) -> Iterator[tuple[int, Index]]:
    """Cut an array into blocks of at most ``limit`` elements that follow each other in C order.

    Each is the number of its first element and an index that selects it.
    """
    if math.prod(shape) <= limit:
        yield 0, (Ellipsis,)
        return
    inner = math.prod(shape[1:])
    if inner <= limit:
        rows = limit // inner
        for row in range(0, shape[0], rows):
            yield row * inner, (slice(row, row + rows),)
        return
    for row in range(shape[0]):
        for start, index in blocks(shape[1:], limit):
            yield row * inner + start, (row, *index)


def _divisible(array: np.ndarray[Any, Any], chunk_bytes: int) -> np.ndarray[Any, Any]:
    """The array in elements that fit into a chunk."""
    if array.dtype.itemsize <= chunk_bytes:
        return array
    raise DeviceError(f"an element of {array.dtype} is larger than a staging chunk of {chunk_bytes} bytes")
