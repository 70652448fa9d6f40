"""The pool: regions from an allocator, cut into chunks that are reused in stream order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import numpy as np
from plait.devices.blocks import checked_request, checked_view
from plait.devices.memory.behind import behind
from plait.devices.memory.bins import GRAIN
from plait.devices.memory.chunks import NONE, QUICK, USED, Chunks
from plait.devices.memory.lanes import Lane, Lanes, Passed
from plait.devices.memory.regions import Regions
from plait.devices.memory.report import PoolStatistics, out_of_memory
from plait.devices.protocol import Allocator
from plait.errors import DeviceError, OutOfMemory

NOTHING = NONE  # the handle of zero bytes


class Pool:
    """Memory by integer handles. From any thread, under one lock, but not from finalizers: those may run under it.

    A stream, here, is any hashable; None is for memory that no stream has work on. What was given back on a stream is
    had again on it at once, and elsewhere once that stream has passed: ``record(stream)`` marks the point and says
    whether it has, and is called only when another stream is short of memory. For plait's streams and launch queues
    the default does.

    ``limit`` bounds the bytes taken from ``upstream``. When more than ``high`` bytes lie free, regions that are wholly
    free go back upstream, the one unused for longest first, until at most ``low`` bytes lie free (as far as streams
    have passed). Without ``high`` nothing goes back but by ``trim`` and to make room for another region.

    Sizes are rounded up to 256 bytes, and a chunk is always cut to what was asked for: the rest is joined again with
    what is freed beside it, so leaving it on, as other pools do, would only waste it.
    """

    def __init__(
        self,
        upstream: Allocator,
        *,
        limit: int | None = None,
        high: int | None = None,
        low: int = 0,
        record: Callable[[Any], Passed] = behind,
        name: str = "pool",
    ) -> None:
        if (limit is not None and limit < 0) or low < 0 or (high is not None and high < low):
            raise DeviceError(f"a pool needs 0 <= low <= high and limit >= 0, not {low=}, {high=}, {limit=}")
        self.name = name
        self.limit = limit
        self._high = float("inf") if high is None else high
        self._trigger = self._high
        self._low = low
        # Guards everything below.
        self._lock = threading.Lock()
        self._regions = Regions(upstream, limit)
        self._chunks = Chunks()
        self._size, self._owner, self._region = self._chunks.size, self._chunks.owner, self._chunks.region
        self._epoch, self._tag = self._chunks.epoch, self._chunks.tag
        self._used, self._idle = self._regions.used, self._regions.idle
        self._all_lanes = Lanes(self._chunks, record)
        self._lanes, self._anyone = self._all_lanes.of, self._all_lanes.anyone
        self._allocations = self._in_use = self._peak = self._largest = 0

    def __repr__(self) -> str:
        return f"<Pool {self.name} {self._in_use} of {self._regions.reserved} bytes in use>"

    # ---- by handle --------------------------------------------------------------------------------------------

    def try_take(self, nbytes: int, stream: Hashable = None, tag: Any = None, alignment: int = GRAIN) -> int | None:
        """A handle on ``nbytes``, free to use in the order of ``stream``; None if there is no room.

        ``tag`` is what the report calls them. ``alignment`` is a power of two. Zero bytes are ``NOTHING``.
        """
        with self._lock:
            lane = self._lanes.get(stream, self._anyone)
            size = nbytes + 255 & -256
            handles = lane.quick.get(size) or self._anyone.quick.get(size)
            if handles and alignment == GRAIN:
                handle = handles.pop()
            else:
                handle = self._search(nbytes, lane, alignment)
                if handle < 0 < nbytes:
                    return None
                if handle < 0:
                    self._allocations += 1
                    return NOTHING
            self._owner[handle] = USED
            self._tag[handle] = tag
            region = self._region[handle]
            used = self._used[region]
            if not used:
                del self._idle[region]
            self._used[region] = used + 1
            self._allocations += 1
            self._in_use = in_use = self._in_use + size
            if in_use > self._peak:  # noqa: PLR1730  half the price of max
                self._peak = in_use
            return handle

    def take(self, nbytes: int, stream: Hashable = None, tag: Any = None, alignment: int = GRAIN) -> int:
        """As ``try_take``; OutOfMemory with the report if there is no room."""
        handle = self.try_take(nbytes, stream, tag, alignment)
        if handle is None:
            raise self.exhausted(nbytes, tag)
        return handle

    def give(self, handle: int, stream: Hashable = None, passed: Passed | None = None) -> None:
        """Give back: free for all now, or for ``stream`` now and for all once it has passed.

        ``passed`` says so for what is on the stream by now, if the caller has an event of its own; without a stream,
        nobody may have the bytes before. DeviceError if the handle is not taken.
        """
        with self._lock:
            if handle < 0:
                return
            if handle >= len(self._owner) or self._owner[handle] != USED:
                raise DeviceError(f"{self.name}: handle {handle} is not taken; was it given back twice?")
            key = stream if passed is None or stream is not None else passed
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._all_lanes.new(key)
            self._owner[handle] = QUICK
            self._epoch[handle] = lane.epoch
            if passed is not None:
                lane.mark(passed)
            size = self._size[handle]
            handles = lane.quick.get(size)
            if handles is None:
                lane.quick[size] = [handle]
            else:
                handles.append(handle)
            self._in_use -= size
            region = self._region[handle]
            used = self._used[region] - 1
            self._used[region] = used
            if not used:
                self._idle[region] = None
            if self._idle and self._regions.reserved - self._in_use > self._trigger:
                self._shrink()

    def address(self, handle: int) -> int:
        """Where the bytes are; 0 for ``NOTHING``."""
        return 0 if handle < 0 else self._chunks.start[handle]

    def array(self, handle: int, shape: int | tuple[int, ...], dtype: Any) -> Any:
        """The first bytes as the platform's array, valid until given back; DeviceError if they are too few."""
        if handle < 0:
            return self._regions.nothing(*checked_view(shape, dtype, 0)[:2])
        if self._owner[handle] != USED:
            raise DeviceError(f"{self.name}: handle {handle} is not taken; its bytes may be someone else's")
        start, size = self._chunks.start[handle], self._size[handle]
        return self._regions.view(self._region[handle], start, size, shape, np.dtype(dtype))

    @property
    def in_use(self) -> int:
        """Bytes taken now. Like ``reserved``, cheaper than ``statistics``."""
        return self._in_use

    @property
    def reserved(self) -> int:
        """Bytes from upstream, taken or free."""
        return self._regions.reserved

    # ---- as a whole -------------------------------------------------------------------------------------------

    def trim(self, keep: int = 0) -> int:
        """Give wholly free regions back upstream until at most ``keep`` bytes lie free; the bytes that went back."""
        with self._lock:
            return self._release_to(keep)

    def close(self) -> None:
        """Give everything back; DeviceError, and nothing changes, if blocks are taken or streams have not passed."""
        with self._lock:
            self._all_lanes.settle()
            waiting = sum(1 for lane in self._lanes.values() if lane is not self._anyone)
            held = sum(self._used)
            if held or waiting:
                raise DeviceError(
                    f"{self.name} cannot close: {held} blocks are taken ({self._in_use} bytes) and memory waits for "
                    f"{waiting} streams; give everything back and synchronize the streams first"
                )
            self._release_to(0)

    def statistics(self) -> PoolStatistics:
        """The figures now."""
        with self._lock:
            return self._statistics()

    def reset_peak(self) -> None:
        """From now on the peaks are of what follows."""
        with self._lock:
            self._peak, self._regions.peak = self._in_use, self._regions.reserved

    def exhausted(self, nbytes: int, tag: Any = None) -> OutOfMemory:
        """The error for a request that there is no room for, with the ten largest holders by their tags."""
        with self._lock:
            chunks, refusal, streams = self._chunks, self._regions.refusal, len(self._lanes) - 1
            tried = ["free blocks of the stream and of all, joined with their neighbours"]
            if streams:
                tried.append(f"blocks given back on other streams: {streams} have not passed")
            tried.append(f"another region: {'the limit leaves no room' if refusal is None else refusal}")
            tried.append("giving back regions that are wholly free")
            holders = [(chunks.size[at], chunks.tag[at]) for at, owner in enumerate(chunks.owner) if owner == USED]
            error = OutOfMemory(out_of_memory(self.name, nbytes, self._statistics(), holders, tried, tag))
            error.__cause__ = refusal
            return error

    # ---- with the lock held -----------------------------------------------------------------------------------

    def _search(self, nbytes: int, lane: Lane, alignment: int) -> int:
        """A chunk cut to size, in the pool's hands; negative if there is none."""
        checked_request(nbytes, alignment)
        if not nbytes:
            return NONE
        size = nbytes + 255 & -256
        wanted = size if alignment <= GRAIN else size + alignment - GRAIN
        lanes = self._all_lanes
        handle = lanes.fit(lane, wanted)
        if handle < 0 and len(self._lanes) > 1 and lanes.settle():
            self._trigger = self._high
            handle = lanes.fit(lane, wanted)
        if handle < 0:
            handle = self._grow(wanted)
        if handle < 0 and lanes.annex(lane, wanted):
            handle = lane.bins.fit(wanted)
        if handle < 0:
            return handle
        chunks = self._chunks
        owner = lane if self._owner[handle] == lane.number else self._anyone
        skipped = -chunks.start[handle] % alignment
        if skipped:
            rest = chunks.cut(handle, skipped)
            lanes.put(owner, handle)
            handle = rest
        if self._size[handle] > size:
            lanes.put(owner, chunks.cut(handle, size))
        self._largest = max(self._largest, size)
        return handle

    def _grow(self, size: int) -> int:
        """The chunk of a new region; room is made for it with regions that are wholly free."""
        regions = self._regions
        region = regions.grow(size)
        whole = [] if region >= 0 else self._all_lanes.whole(regions)
        if whole and regions.room() + sum(self._size[handle] for handle in whole) >= size:
            for handle in whole:
                self._release(handle)
                if regions.room() >= size and regions.refusal is None:
                    break
            region = regions.grow(size)
        if region < 0:
            return NONE
        block = regions.blocks[region]
        assert block is not None
        handle = regions.first[region] = self._chunks.new(block.address, block.nbytes, region, NONE, NONE)
        self._owner[handle] = self._anyone.number
        return handle

    def _release(self, handle: int) -> int:
        self._anyone.bins.remove(self._chunks.key(handle))
        self._chunks.drop(handle)
        return self._regions.release(self._region[handle])

    def _shrink(self) -> None:
        """Give back down to the low threshold; what cannot go yet is looked at again when more lies free."""
        with suppress(DeviceError):  # of a stream, which says it to who uses it: this block is given back
            self._release_to(self._low)
        free = self._regions.reserved - self._in_use
        self._trigger = self._high if free <= self._high else free + max(free >> 3, GRAIN)

    def _release_to(self, keep: int) -> int:
        self._all_lanes.settle()
        returned, regions = 0, self._regions
        for handle in self._all_lanes.whole(self._regions):
            if regions.reserved - self._in_use <= keep:
                break
            returned += self._release(handle)
        return returned

    def _statistics(self) -> PoolStatistics:
        lanes, regions = self._all_lanes, self._regions
        for lane in lanes.of.values():
            lanes.flush(lane)
        return PoolStatistics(
            allocations=self._allocations,
            blocks=sum(self._used),
            in_use=self._in_use,
            peak=self._peak,
            largest=self._largest,
            reserved=regions.reserved,
            peak_reserved=regions.peak,
            regions=regions.count,
            largest_free=max(lane.bins.largest() for lane in lanes.of.values()),
            waiting=lanes.waiting(),
            limit=self.limit,
        )
