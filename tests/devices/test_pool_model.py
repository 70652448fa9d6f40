"""The pool against a reference that knows of every byte who may have it next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from memory_kit import Clock, Paper
from plait.devices.memory import NOTHING, Pool
from plait.errors import DeviceError, OutOfMemory

STREAMS = st.sampled_from([None, "a", "b", "c"])
SIZES = st.one_of(
    st.sampled_from([1, 255, 256, 257, 1000, 4096, 1 << 16, 700_000, (2 << 20) + 1]), st.integers(0, 200_000)
)


@dataclass(frozen=True)
class Given:
    """Bytes that were given back: on a stream, after so much work of it, or behind an event without stream."""

    start: int
    end: int
    stream: object
    number: int
    event: object

    def without(self, start: int, end: int) -> list[Given]:
        """What is left when a range is taken again."""
        parts = ((self.start, min(self.end, start)), (max(self.start, end), self.end))
        return [replace(self, start=first, end=last) for first, last in parts if first < last]


class PoolModel(RuleBasedStateMachine):
    """Byte ranges that are held, and those given back that not everyone may have yet."""

    limit: int | None = None
    high: int | None = None
    low = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.paper = Clock(), Paper()
        self.pool = Pool(self.paper, limit=self.limit, high=self.high, low=self.low, record=self.clock.record)
        self.held: dict[int, tuple[int, int]] = {}
        self.given: list[Given] = []
        self.taken = self.peak = 0

    @rule(nbytes=SIZES, stream=STREAMS, alignment=st.sampled_from([1, 64, 256, 256, 256, 4096, 1 << 16]))
    def take(self, nbytes: int, stream: object, alignment: int) -> None:
        handle = self.pool.try_take(nbytes, stream, "tag", alignment)
        if handle is None:
            assert self.limit is not None, "only a limit can refuse here"
            size = nbytes + 255 & -256
            assert alignment > 256 or self.longest(stream) < size, "there was room"
            with pytest.raises(OutOfMemory, match=f"cannot serve {nbytes} bytes"):
                self.pool.take(nbytes, stream, alignment=alignment)
            return
        if nbytes == 0:
            assert handle == NOTHING
            assert self.pool.address(handle) == 0
            self.taken += 1
            return
        start = self.pool.address(handle)
        end = start + (nbytes + 255 & -256)
        assert start % max(alignment, 256) == 0
        assert handle not in self.held
        assert any(base <= start and end <= base + size for base, size in self.paper.held.items()), "outside upstream"
        for other, other_end in self.held.values():
            assert end <= other or other_end <= start, "two blocks overlap"
        for given in self.given:
            if given.start < end and start < given.end:
                assert self.may_have(given, stream), f"{stream} got what is still {given}"
        self.given = [part for given in self.given for part in given.without(start, end)]
        self.held[handle] = start, end
        self.taken += 1
        self.peak = max(self.peak, self.in_use())
        if stream is not None:
            self.clock.work(stream)

    def longest(self, stream: object) -> int:
        """The longest run of bytes in one region that the stream may have now."""
        taken = [*self.held.values()]
        taken += [(given.start, given.end) for given in self.given if not self.may_have(given, stream)]
        longest = 0
        for base, size in self.paper.held.items():
            inside = sorted(each for each in taken if base <= each[0] < base + size)
            at = base
            for start, end in [*inside, (base + size, base + size)]:
                longest = max(longest, start - at)
                at = max(at, end)
        return longest

    def may_have(self, given: Given, stream: object) -> bool:
        if given.event is not None:
            return self.clock.has_passed(given.event, given.number)
        return given.stream in (None, stream) or self.clock.has_passed(given.stream, given.number)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), stream=STREAMS, event=st.sampled_from([False, False, True]))
    def give(self, data: st.DataObject, stream: object, event: bool) -> None:
        handle = data.draw(st.sampled_from(sorted(self.held)))
        start, end = self.held.pop(handle)
        if not event:
            number = 0 if stream is None else self.clock.work(stream)
            self.pool.give(handle, stream)
            self.given.append(Given(start, end, stream, number, None))
        elif stream is None:
            number = self.clock.work("elsewhere")
            self.pool.give(handle, passed=self.clock.mark("elsewhere"))
            self.given.append(Given(start, end, None, number, "elsewhere"))
        else:
            number = self.clock.work(stream)
            self.pool.give(handle, stream, self.clock.mark(stream))
            self.given.append(Given(start, end, stream, number, None))
        with pytest.raises(DeviceError, match="not taken"):
            self.pool.give(handle)

    @rule(stream=st.sampled_from(["a", "b", "c", "elsewhere"]))
    def pass_all(self, stream: object) -> None:
        self.clock.pass_all(stream)

    @rule(keep=st.sampled_from([0, 1 << 20]))
    def trim(self, keep: int) -> None:
        before = sum(self.paper.held.values())
        returned = self.pool.trim(keep)
        assert sum(self.paper.held.values()) == before - returned

    def in_use(self) -> int:
        return sum(end - start for start, end in self.held.values())

    @invariant()
    def figures_are_right(self) -> None:
        figures = self.pool.statistics()
        assert (figures.in_use, figures.blocks) == (self.in_use(), len(self.held))
        assert (figures.peak, figures.allocations) == (self.peak, self.taken)
        assert (figures.reserved, figures.regions) == (sum(self.paper.held.values()), len(self.paper.held))
        assert figures.largest_free + figures.in_use <= figures.reserved
        assert 0 <= figures.waiting <= figures.free
        assert 0.0 <= figures.fragmentation <= 1.0
        if self.limit is not None:
            assert figures.reserved <= self.limit

    def teardown(self) -> None:
        for handle in self.held:
            self.pool.give(handle)
        for stream in list(self.clock.enqueued):
            self.clock.pass_all(stream)
        self.pool.trim(1 << 60)
        figures = self.pool.statistics()
        assert (figures.in_use, figures.waiting) == (0, 0)
        assert figures.largest_free == max(self.paper.held.values(), default=0), "a region is not whole again"
        self.pool.close()
        assert not self.paper.held


class LimitedModel(PoolModel):
    limit = (3 << 20) + 77


class ThriftyModel(PoolModel):
    high, low = 3 << 20, 1 << 20


for model in (PoolModel, LimitedModel, ThriftyModel):
    model.TestCase.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)

TestPool = PoolModel.TestCase
TestLimited = LimitedModel.TestCase
TestThrifty = ThriftyModel.TestCase
