"""The pool, rule by rule: reuse, streams, growth, thresholds, and what it says of itself."""

from __future__ import annotations

import random
import threading
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from memory_kit import Clock, Paper
from plait.devices import HostAllocator, HostDevice
from plait.devices.memory import NOTHING, Pool, PooledAllocator, PoolStatistics, behind
from plait.errors import DeviceError, OutOfMemory
from plait.testing import conformance_memory
from plait.testing.conformance_kit import Gate, finish

MIB = 1 << 20


def test_bytes_given_back_are_had_again() -> None:
    pool = Pool(Paper())
    first = pool.take(1000)
    address = pool.address(first)
    pool.give(first)
    second = pool.take(900)  # of the same 1024
    assert pool.address(second) == address
    assert pool.statistics().reserved == 2 * MIB


def test_the_best_fit_at_the_lowest_address_is_cut_to_size() -> None:
    pool = Pool(Paper())
    sizes = [4096, 256, 2048, 256, 2048, 256, 1024]
    handles = [pool.take(size) for size in sizes]
    addresses = [pool.address(handle) for handle in handles]
    for index in (0, 2, 4):
        pool.give(handles[index])
    assert pool.address(pool.take(1500)) == addresses[2]
    assert pool.address(pool.take(512)) == addresses[2] + 1536, "the rest of what was cut is the best fit"
    assert pool.address(pool.take(2048)) == addresses[4]
    assert pool.address(pool.take(2049)) == addresses[0]


def test_neighbours_join_and_regions_do_not() -> None:
    paper = Paper()
    pool = Pool(paper)
    handles = [pool.take(512 << 10) for _ in range(8)]
    assert paper.asked == [2 * MIB, 2 * MIB]
    random.Random(3).shuffle(handles)
    for handle in handles:
        pool.give(handle)
    assert pool.statistics().largest_free == 2 * MIB
    pool.take(4 * MIB)
    assert paper.asked == [2 * MIB, 2 * MIB, 4 * MIB]


def test_regions_grow_with_what_is_reserved() -> None:
    paper = Paper()
    pool = Pool(paper)
    for _ in range(64):
        pool.take(MIB)
    assert paper.asked[:8] == [2 * MIB] * 8
    assert paper.asked[8:] == sorted(paper.asked[8:])
    assert max(paper.asked) == 6 * MIB, "an eighth of what there was, in steps of 2 MiB"
    assert sum(paper.asked) <= 64 * MIB * 9 // 8
    pool = Pool(paper)
    pool.take(MIB + 256)
    assert paper.asked[-1] == 2 * (MIB + 256), "room for another like it"


def test_growth_backs_off_to_what_upstream_has() -> None:
    paper = Paper(most=MIB)
    pool = Pool(paper)
    pool.take(300_000)
    assert paper.asked[0] == 2 * MIB
    assert pool.statistics().reserved == paper.asked[-1] <= MIB
    assert all(0.85 < later / earlier < 0.91 for earlier, later in zip(paper.asked, paper.asked[1:], strict=False))


def test_zero_bytes_are_nothing_and_free_of_charge() -> None:
    pool = Pool(HostAllocator())
    assert pool.take(0) == NOTHING
    assert pool.address(NOTHING) == 0
    assert pool.array(NOTHING, (0, 3), "f4").shape == (0, 3)
    pool.give(NOTHING)
    pool.give(NOTHING)
    figures = pool.statistics()
    assert (figures.allocations, figures.blocks, figures.reserved, figures.fragmentation) == (1, 0, 0, 0.0)


def test_arrays_are_the_blocks_bytes() -> None:
    host = HostAllocator()
    pool = Pool(host)
    first, second = pool.take(6 * 8), pool.take(1000, alignment=4096)
    array = pool.array(first, (2, 3), np.float64)
    array[...] = 1.5
    pool.array(second, 1000, np.uint8)[...] = 255
    assert pool.address(second) % 4096 == 0
    assert array.ctypes.data == pool.address(first)
    assert not isinstance(array.base, np.ndarray), "the region's bytes are not this array's"
    assert (pool.array(first, 6, "f8") == 1.5).all()
    for shape, dtype in ((257, "u1"), ((-1,), "u1"), ((2,), object), (1 << 62, "u1"), (1 << 20, "u1")):
        with pytest.raises(DeviceError):
            pool.array(first, shape, dtype)
    pool.give(first)
    with pytest.raises(DeviceError, match="not taken"):
        pool.array(first, 1, "u1")


def test_a_block_of_the_right_size_and_the_wrong_alignment_is_passed_over() -> None:
    pool = Pool(Paper())
    pool.take(256)
    handle = pool.take(4096)
    assert pool.address(handle) % 4096 == 256
    pool.give(handle)
    assert pool.address(pool.take(4096, alignment=4096)) % 4096 == 0


def test_wrong_calls_are_refused_and_change_nothing() -> None:
    pool = Pool(Paper())
    handle = pool.take(256)
    before = pool.statistics()
    for nbytes, alignment in ((-1, 256), (1, 0), (1, 384), (1, -256)):
        with pytest.raises(DeviceError):
            pool.take(nbytes, alignment=alignment)
    with pytest.raises(DeviceError, match="not taken"):
        pool.give(1 << 20)
    assert pool.statistics() == before
    pool.give(handle)
    with pytest.raises(DeviceError, match="given back twice"):
        pool.give(handle)
    for options in ({"limit": -1}, {"high": 1, "low": 2}, {"low": -1}):
        with pytest.raises(DeviceError, match="0 <= low <= high"):
            Pool(Paper(), **options)


# ---- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_has_its_own_bytes_again_at_once_and_others_when_it_has_passed() -> None:
    clock, paper = Clock(), Paper()
    pool = Pool(paper, limit=2 * MIB, record=clock.record)
    handle = pool.take(2 * MIB, "a")
    address = pool.address(handle)
    clock.work("a")
    pool.give(handle, "a")
    assert pool.try_take(MIB, "b") is None
    assert pool.try_take(MIB) is None, "nor may the host have them"
    again = pool.take(2 * MIB, "a")
    assert pool.address(again) == address
    clock.work("a")
    pool.give(again, "a")
    clock.reached["a"] = 1  # what was recorded for the first free says nothing of the second
    assert pool.try_take(MIB, "b") is None
    clock.pass_all("a")
    assert pool.address(pool.take(MIB, "b")) == address


def test_nothing_is_recorded_until_another_stream_is_short() -> None:
    clock = Clock()
    pool = Pool(Paper(), record=clock.record)
    for _ in range(100):
        pool.give(pool.take(4096, "a"), "a")
    pool.give(pool.take(4096, "b"), "b")
    assert not clock.recorded
    pool.take(3 * MIB, "b")
    assert sorted(clock.recorded) == ["a", "b"]


def test_a_stream_cuts_and_joins_its_own_bytes() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=2 * MIB, record=clock.record)
    handles = [pool.take(512 << 10, "a") for _ in range(4)]
    clock.work("a")
    for handle in handles[:3]:
        pool.give(handle, "a")
    pool.give(pool.take(1536 << 10, "a"), "a")
    pool.give(handles[3])
    assert pool.try_take(512 << 10, "b") is not None, "what nobody works on is everyone's"
    assert pool.try_take(512 << 10, "b") is None


def test_bytes_of_a_stream_join_bytes_of_all_when_nothing_else_helps() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=2 * MIB, record=clock.record)
    first, second = pool.take(MIB, "a"), pool.take(MIB, "a")
    clock.work("a")
    pool.give(first, "a")
    pool.give(second)
    assert pool.try_take(2 * MIB, "b") is None
    handle = pool.take(2 * MIB, "a")
    pool.give(handle, "a")
    assert pool.try_take(MIB, "b") is None
    clock.pass_all("a")
    assert pool.try_take(2 * MIB, "b") is not None


def test_bytes_joined_are_as_late_as_the_later_of_both() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=2 * MIB, record=clock.record)
    first, second = pool.take(MIB, "a"), pool.take(MIB, "a")
    clock.work("a")
    pool.give(first, "a")
    assert pool.try_take(MIB, "b") is None
    clock.work("a")
    pool.give(second, "a")
    assert pool.try_take(MIB + 4096, "a") is not None
    clock.reached["a"] = 1
    assert pool.try_take(512 << 10, "b") is None
    clock.pass_all("a")
    assert pool.try_take(512 << 10, "b") is not None


def test_the_rest_of_what_is_cut_is_as_late_as_the_whole() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=2 * MIB, record=clock.record)
    handle = pool.take(2 * MIB, "a")
    clock.work("a")
    pool.give(handle, "a")
    assert pool.try_take(MIB, "b") is None
    handle = pool.take(2 * MIB, "a")
    clock.work("a")
    pool.give(handle, "a")
    pool.take(256, "a")
    clock.reached["a"] = 1
    assert pool.try_take(MIB, "b") is None
    clock.pass_all("a")
    assert pool.try_take(MIB, "b") is not None


def test_what_was_free_for_all_is_free_again_with_the_stream_that_it_was_joined_for() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=2 * MIB, record=clock.record)
    first, second = pool.take(MIB, "c"), pool.take(MIB, "b")
    for _ in range(3):
        clock.work("c")
        pool.give(first, "c")
        assert pool.try_take(MIB, "b") is None
        first = pool.take(MIB, "c")
    pool.give(first, "c")
    clock.pass_all("c")
    pool.trim(keep=2 * MIB)
    clock.work("b")
    pool.give(second, "b")
    pool.take(1536 << 10, "b")
    clock.pass_all("b")
    assert pool.try_take(512 << 10, "d") is not None


def test_an_event_of_the_callers_own() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=2 * MIB, record=clock.record)
    handle = pool.take(2 * MIB, "a")
    clock.work("a")
    pool.give(handle, passed=clock.mark("a"))
    assert pool.try_take(MIB, "a") is None, "no stream was named, so nobody may have them before"
    clock.work("a")
    clock.reached["a"] = 1
    again = pool.take(2 * MIB, "b")
    pool.give(again, "b", clock.mark("a"))
    assert not clock.recorded
    assert pool.take(MIB, "b") is not None


def test_many_events_of_one_stream_are_few_marks() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=2 * MIB, record=clock.record)
    for _ in range(1000):
        handle = pool.take(MIB, "a")
        clock.work("a")
        pool.give(handle, "a", clock.mark("a"))
    assert len(pool._lanes["a"].marks) < 10
    clock.reached["a"] = 999
    assert pool.try_take(2 * MIB, "b") is None
    clock.reached["a"] = 1000
    assert pool.try_take(2 * MIB, "b") is not None
    assert len(pool._lanes) == 1, "a stream that nothing is free for is forgotten"


def test_with_streams_of_the_host() -> None:
    host, gate = HostDevice(), Gate()
    one, two = host.stream(), host.stream()
    pool = Pool(HostAllocator(), limit=MIB)
    handle = pool.take(MIB, one)
    one.wait(gate)
    one.fill(pool.array(handle, MIB, np.uint8), 7)
    pool.give(handle, one)
    assert pool.try_take(MIB, two) is None
    with pytest.raises(DeviceError, match="1 streams"):
        pool.close()
    gate.open()
    finish(one)
    finish(two)
    again = pool.take(MIB, two)
    assert (pool.array(again, MIB, np.uint8) == 7).all()
    one.close()
    pool.give(again, one)
    assert pool.try_take(MIB, two) is not None, "a closed stream has passed too"
    with pytest.raises(DeviceError, match="neither a plait event nor a plait stream"):
        behind("stream")


def test_a_failed_stream_has_passed() -> None:
    host = HostDevice()
    stream = host.stream()
    pool = Pool(HostAllocator(), limit=MIB)
    handle = pool.take(MIB, stream)
    stream.enqueue(int, "no number")
    pool.give(handle, stream)
    with pytest.raises(ValueError, match="no number"):
        finish(stream)
    assert pool.try_take(MIB) is not None


# ---- limit and thresholds -------------------------------------------------------------------------------------------


def test_the_region_unused_for_longest_makes_room() -> None:
    paper = Paper()
    pool = Pool(paper, limit=6 * MIB)
    a, b, c = (pool.take(size * MIB) for size in (3, 2, 1))
    for handle in (b, a, c):
        pool.give(handle)
    pool.give(pool.take(2 * MIB))  # b again: now a is the one unused for longest
    pool.take(4 * MIB)
    assert paper.freed == [3 * MIB, 1 * MIB]


def test_a_region_is_used_until_its_last_block_is_given_back() -> None:
    paper = Paper()
    pool = Pool(paper, limit=6 * MIB)
    handles = [pool.take(size * MIB) for size in (3, 2, 1)]
    for handle in reversed(handles):
        pool.give(handle)
    pool.take(3 * MIB + 1)
    assert paper.freed == [1 * MIB, 2 * MIB, 3 * MIB]


def test_regions_that_would_not_make_room_stay() -> None:
    paper = Paper()
    pool = Pool(paper, limit=4 * MIB)
    held, idle = pool.take(2 * MIB), pool.take(2 * MIB)
    pool.give(idle)
    assert pool.try_take(3 * MIB) is None
    assert not paper.freed
    pool.give(held)
    assert pool.try_take(3 * MIB) is not None


def test_what_upstream_refuses_it_gets_from_idle_regions() -> None:
    paper = Paper(total=4 * MIB)
    pool = Pool(paper)
    for handle in [pool.take(2 * MIB), pool.take(2 * MIB)]:
        pool.give(handle)
    pool.take(3 * MIB)
    assert paper.freed == [2 * MIB, 2 * MIB]


def test_above_the_high_threshold_memory_goes_back_down_to_the_low_one() -> None:
    paper = Paper()
    pool = Pool(paper, high=6 * MIB, low=3 * MIB)
    handles = [pool.take(2 * MIB) for _ in range(5)]
    for handle in handles[:3]:
        pool.give(handle)
    assert not paper.freed
    pool.give(handles[3])
    assert pool.statistics().free == 2 * MIB
    assert paper.freed == [2 * MIB] * 3


def test_a_threshold_waits_for_streams() -> None:
    clock, paper = Clock(), Paper()
    pool = Pool(paper, high=2 * MIB, low=0, record=clock.record)
    first, second, third = (pool.take(2 * MIB, "a") for _ in range(3))
    clock.work("a")
    pool.give(first, "a")
    pool.give(second, "a")
    assert not paper.freed, "its stream still works on it"
    clock.pass_all("a")
    clock.work("a")
    pool.give(third, "a")
    clock.pass_all("a")
    assert paper.freed == [2 * MIB] * 2, "what has passed goes"
    assert pool.trim() == 2 * MIB


def test_a_threshold_is_itself_again_once_streams_have_passed() -> None:
    clock, paper = Clock(), Paper()
    pool = Pool(paper, high=2 * MIB, low=0, record=clock.record)
    for handle in [pool.take(2 * MIB, "a") for _ in range(2)]:
        clock.work("a")
        pool.give(handle, "a")
    assert not paper.freed
    clock.pass_all("a")
    pool.give(pool.take(2 * MIB, "b"))
    assert paper.freed == [2 * MIB] * 2


def test_a_stream_that_cannot_be_recorded_does_not_keep_a_block_from_being_given() -> None:
    def broken(stream: object) -> None:
        raise DeviceError(f"{stream} is lost")

    pool = Pool(Paper(), high=0, record=broken)  # type: ignore[arg-type]
    pool.give(pool.take(2 * MIB, "a"), "a")
    assert pool.statistics().blocks == 0
    with pytest.raises(DeviceError, match="a is lost"):
        pool.trim()


def test_trim_gives_back_what_is_wholly_free() -> None:
    paper = Paper()
    pool = Pool(paper)
    handles = [pool.take(MIB) for _ in range(6)]
    for handle in handles[1:]:
        pool.give(handle)
    assert pool.trim(keep=4 * MIB) == 2 * MIB
    assert pool.trim() == 2 * MIB
    assert pool.trim() == 0
    assert pool.statistics().reserved == 2 * MIB
    with pytest.raises(DeviceError, match=r"1 blocks are taken \(1048576 bytes\)"):
        pool.close()
    pool.give(handles[0])
    pool.close()
    assert not paper.held


# ---- what it says ---------------------------------------------------------------------------------------------------


def test_figures() -> None:
    pool = Pool(Paper(), limit=10 * MIB)
    first, second = pool.take(MIB), pool.take(1000)
    pool.give(first)
    figures = pool.statistics()
    assert figures == PoolStatistics(
        allocations=2,
        blocks=1,
        in_use=1024,
        peak=MIB + 1024,
        largest=MIB,
        reserved=2 * MIB,
        peak_reserved=2 * MIB,
        regions=1,
        largest_free=MIB,
        waiting=0,
        limit=10 * MIB,
    )
    assert figures.free == 2 * MIB - 1024
    assert figures.fragmentation == pytest.approx((MIB - 1024) / (2 * MIB - 1024))
    pool.reset_peak()
    assert pool.statistics().peak == 1024
    with pytest.raises(FrozenInstanceError):
        figures.peak = 3  # type: ignore[misc]
    pool.give(second)


def test_out_of_memory_names_figures_holders_and_what_was_tried() -> None:
    clock = Clock()
    pool = Pool(Paper(), limit=4 * MIB, record=clock.record, name="hip:0 device memory")
    for number in range(12):
        pool.take(64 << 10 | number << 8, tag=f"tile:{number}")
    pool.take(MIB, "a", "input 'x'")
    on_stream = pool.take(MIB, "a")
    clock.work("a")
    pool.give(on_stream, "a")
    with pytest.raises(OutOfMemory) as caught:
        pool.take(2 * MIB, tag="result of 'conv'")
    text = str(caught.value)
    figures = pool.statistics()
    for part in (
        "hip:0 device memory cannot serve 2097152 bytes (2 MiB) for result of 'conv'",
        f"{figures.in_use} bytes in use in 13 blocks",
        f"4194304 reserved in {figures.regions} regions, limit 4194304 bytes",
        f"{figures.free} bytes free, {MIB} of them only for streams that have not passed; "
        f"largest free block {figures.largest_free}",
        "tried: another region: the limit leaves no room",
        "tried: blocks given back on other streams: 1 have not passed",
        "1 MiB  input 'x'",
        "tile:11",
        "tile:3",
        "wait for work in flight",
    ):
        assert part in text
    assert "tile:2\n" not in text, "only the ten largest"
    with pytest.raises(OutOfMemory, match="raise the limit, or cut the buffer"):
        pool.take(5 * MIB)


def test_out_of_memory_keeps_what_upstream_said() -> None:
    pool = Pool(Paper(total=MIB))
    with pytest.raises(OutOfMemory, match="tried: another region: paper has run out at 3145728") as caught:
        pool.take(3 * MIB)
    assert isinstance(caught.value.__cause__, OutOfMemory)
    pool = Pool(Paper(total=MIB), limit=4 * MIB)
    assert pool.try_take(3 * MIB) is None
    with pytest.raises(OutOfMemory, match="tried: another region: the limit leaves no room") as caught:
        pool.take(5 * MIB)
    assert caught.value.__cause__ is None


# ---- as an allocator ------------------------------------------------------------------------------------------------


class PooledHost(HostDevice):
    """The host, its memory from a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = PooledAllocator(Pool(HostAllocator()))  # type: ignore[assignment]


class PooledPlatform:
    """A platform with that device."""

    name = "host"
    absent = None

    def __init__(self) -> None:
        self._devices = (PooledHost(),)

    def devices(self) -> tuple[HostDevice, ...]:
        return self._devices


MEMORY_SUITE = {name: test for name, test in vars(conformance_memory).items() if name.startswith("test_")}


@pytest.mark.parametrize("name", MEMORY_SUITE)
def test_a_pool_passes_as_an_allocator(name: str) -> None:
    MEMORY_SUITE[name](PooledPlatform())


def test_a_block_of_another_pool_or_behind_nonsense_is_refused() -> None:
    allocator, other = (PooledAllocator(Pool(HostAllocator())) for _ in range(2))
    block = allocator.allocate(100, tag="mine")
    with pytest.raises(DeviceError, match="not of this allocator"):
        other.free(block)
    with pytest.raises(DeviceError, match="no plait stream"):
        allocator.free(block, stream="stream")  # type: ignore[arg-type]
    allocator.free(block)
    with pytest.raises(DeviceError, match="freed"):
        block.array(1, "u1")
    assert "limit" not in allocator.statistics()


def test_threads_share_a_pool() -> None:
    pool = Pool(Paper(), high=4 * MIB)
    start, wrong = threading.Barrier(4), []

    def churn(number: int) -> None:
        dice, held = random.Random(number), []
        start.wait(30)
        for _ in range(2000):
            if held and dice.random() < 0.5:
                pool.give(held.pop(dice.randrange(len(held)))[0])
            else:
                handle = pool.take(dice.choice((256, 1000, 70_000)), tag=number)
                held.append((handle, pool.address(handle)))
        wrong.extend(address for handle, address in held if pool.address(handle) != address)
        for handle, _ in held:
            pool.give(handle)

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = pool.statistics()
    assert not wrong
    assert (figures.blocks, figures.in_use) == (0, 0)
    pool.close()
