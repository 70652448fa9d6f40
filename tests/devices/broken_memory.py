"""Hosts with broken memory, and platforms that forget who they are."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
from broken_base import MUTATIONS, BrokenDevice, caught_by
from plait.devices.host.describe import HostDescription
from plait.devices.host.memory import HostAllocator
from plait.devices.host.platform import HostDevice, HostPlatform
from plait.errors import OutOfMemory


@caught_by("test_blocks_are_aligned_and_apart", "allocator")
class Misaligns(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        block = super().allocate(nbytes, alignment=alignment)
        block.address += 1
        return block


@caught_by("test_blocks_are_aligned_and_apart", "allocator")
class Overlaps(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        block = super().allocate(nbytes, alignment=alignment)
        block.address = 1 << 30
        return block


@caught_by("test_zero_bytes_are_legal", "allocator")
class RefusesNothing(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        if nbytes == 0:
            raise OutOfMemory("0 bytes")
        return super().allocate(nbytes, alignment=alignment)


@caught_by("test_wrong_requests_are_refused", "allocator")
class TakesAnyAlignment(HostAllocator):
    def allocate(self, nbytes, *, alignment=64, stream=None):
        return super().allocate(nbytes, alignment=64 if alignment <= 0 else alignment)


@caught_by("test_a_block_is_freed_once_and_where_it_came_from", "allocator")
class FreesTwice(HostAllocator):
    def free(self, block, *, stream=None):
        if not getattr(block, "_freed", False):
            super().free(block, stream=stream)


@caught_by("test_statistics_count_what_happens", "allocator")
class ForgetsThePeak(HostAllocator):
    def statistics(self):
        found = super().statistics()
        return {**found, "peak": found["in_use"]}


@caught_by("test_statistics_count_what_happens", "allocator")
class Leaks(HostAllocator):
    def free(self, block, *, stream=None):
        block._freed = True


@caught_by("test_out_of_memory_says_what_was_asked_and_what_there_is", "allocator")
class SaysLittle(HostAllocator):
    def _exhausted(self, nbytes):
        return OutOfMemory("out of memory")


@caught_by("test_out_of_memory_says_what_was_asked_and_what_there_is", "allocator")
class RaisesMemoryError(HostAllocator):
    def _exhausted(self, nbytes):
        return MemoryError(nbytes)


@caught_by("test_out_of_memory_says_what_was_asked_and_what_there_is", "allocator")
class CountsRefusals(HostAllocator):
    def _exhausted(self, nbytes):
        error = super()._exhausted(nbytes)
        self._counts.in_use += nbytes
        return error


@caught_by("test_free_behind_a_stream_outlives_its_work", "allocator")
class FreesTooSoon(HostAllocator):
    def free(self, block, *, stream=None):
        if stream is not None:
            stream.enqueue(lambda: None)
            for operation in list(stream._operations):
                if operation[0] is np.copyto and operation[1][0].dtype == np.uint8:
                    stream._operations.remove(operation)
        super().free(block)


@caught_by("test_several_threads_allocate", "allocator")
class CountsByThread(HostAllocator):
    def __init__(self):
        super().__init__()
        self.owner = threading.get_ident()

    def statistics(self):
        return super().statistics()

    def allocate(self, nbytes, *, alignment=64, stream=None):
        block = super().allocate(nbytes, alignment=alignment)
        if threading.get_ident() != self.owner:
            self._counts.allocations -= 1
        return block


class _Forgetful(HostPlatform):
    def devices(self):
        return (HostDevice(),)


MUTATIONS["MakesNewDevices"] = ("test_platform_lists_the_same_devices_every_time", _Forgetful)


@dataclasses.dataclass(frozen=True)
class _Lossy(HostDescription):
    def to_json(self):
        return dataclasses.replace(self, memory_bytes=None).__class__.__base__.to_json(
            dataclasses.replace(self, memory_bytes=None)
        )


class _LossyDevice(BrokenDevice):
    description = _Lossy(memory_bytes=1 << 30)


MUTATIONS["LosesAField"] = ("test_description_survives_json", lambda: HostPlatform(_LossyDevice()))
