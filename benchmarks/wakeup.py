"""From a driver event to the trio task that awaits it: each way of completion beside a bare host function.

python benchmarks/wakeup.py [--quick]

Samples are interleaved. In each one a task waits for a kernel that is held; when all is asleep a thread releases it,
and the time counts until the task runs: from the kernel's end where the device tells it on the host's clock (a HIP
runtime on CPU threads does), else from the release. The bare one is a host function that calls ``run_sync_soon`` to set
a ``trio.Event``. "busy ms" is what a stream takes over 50 short kernels, each of them followed, while Python code keeps
the GIL.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import statistics
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import perf_counter, perf_counter_ns, process_time, sleep
from typing import Any, Protocol

import numpy as np
import trio
from harness import Others, heading, print_others
from plait.devices.gpu import driver
from plait.devices.gpu.completion import DEFAULT, WAYS, tracker
from plait.devices.mark import Mark
from plait.devices.waiting import wait_mark, wait_marks

BARE = "bare host function"
Follow = Callable[[Any], Awaitable[object]]


class Held(Protocol):
    """A kernel that ends when it is told to, and then says when it did; ``clock`` names what that is counted from."""

    clock: str

    def launch(self, stream: Any) -> None: ...
    def release(self) -> None: ...
    def ended_ns(self, released_ns: int) -> int: ...


class HeldEngine:
    """The compute engine of a HIP runtime on CPU threads, which also says when the kernel ended."""

    clock = "the kernel's end"

    def __init__(self) -> None:
        library = ctypes.CDLL("libamdhip64.so.7")
        self._control, self._trace = library.hipcpu_control, library.hipcpu_trace
        self._control.argtypes, self._trace.restype = [ctypes.c_char_p], ctypes.c_char_p
        self._kernel = driver.cupy().RawKernel('extern "C" __global__ void nothing(int n) {}', "nothing")

    def launch(self, stream: Any) -> None:
        self._control(b"hold compute 0")
        self._control(b"trace on")
        with stream:
            self._kernel((1,), (1,), (np.int32(1),))

    def release(self) -> None:
        self._control(b"release compute 0")

    def ended_ns(self, _: int) -> int:
        ends = [int(entry[6]) for entry in json.loads(self._trace()) if entry[2] == "kernel"]
        self._control(b"trace off")
        return ends[-1]


class HeldByFlag:
    """A kernel that spins until a word of pinned memory is set."""

    clock = "the release"

    def __init__(self) -> None:
        source = 'extern "C" __global__ void held(volatile int* flag) { while (*flag == 0); }'
        self._kernel = driver.cupy().RawKernel(source, "held")
        self._pinned = driver.cupy().cuda.alloc_pinned_memory(4)
        self._flag = np.frombuffer(self._pinned, np.int32, 1)
        self._flag[0] = 1
        self._kernel((1,), (1,), (np.uintp(self._pinned.ptr),))  # loads it while nothing is held
        driver.runtime().deviceSynchronize()

    def launch(self, stream: Any) -> None:
        self._flag[0] = 0
        with stream:
            self._kernel((1,), (1,), (np.uintp(self._pinned.ptr),))

    def release(self) -> None:
        self._flag[0] = 1

    def ended_ns(self, released_ns: int) -> int:
        return released_ns


def held_kernel() -> Held:
    """What this device has to hold a kernel with."""
    try:
        return HeldEngine()
    except (OSError, AttributeError):
        return HeldByFlag()


@dataclass
class Figures:
    """Of one way."""

    wakes_us: list[float] = field(default_factory=list)
    follows_us: list[float] = field(default_factory=list)
    beside_python_ms: float = 0.0  # 50 short kernels, each followed, while Python code keeps the GIL
    pending_cpu: float = 0.0  # share of a core while 8 streams are pending
    idle_cpu: float = 0.0  # share of a core while nothing is


def new_event() -> Any:
    """As the trackers want them."""
    return driver.cupy().cuda.Event(block=True, disable_timing=True)


def bare() -> Follow:
    """What a user would write."""
    token = trio.lowlevel.current_trio_token()

    def follow(stream: Any) -> Awaitable[object]:
        reached = trio.Event()
        stream.launch_host_func(lambda _: token.run_sync_soon(reached.set), None)
        return reached.wait()

    return follow


def way(name: str) -> tuple[Follow, Callable[[], None]]:
    """A tracker's way, and how it is closed."""
    ours = tracker(f"{driver.platform_name()}:0", 0, name)

    def follow(stream: Any) -> Awaitable[object]:
        event, mark = new_event(), Mark()
        event.record(stream)
        ours.follow(stream.ptr, event, mark)
        return wait_mark(mark)

    return follow, ours.close


class Releaser:
    """A thread that releases a held kernel a little after it is asked to; it is asleep again when the kernel ends."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.released_ns = 0
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def ask(self) -> None:
        self._asked.put(True)

    def close(self) -> None:
        self._asked.put(False)
        self._thread.join()

    def _serve(self) -> None:
        while self._asked.get():
            sleep(0.001)
            self.released_ns = perf_counter_ns()
            self.held.release()


async def sample(follow: Follow, releaser: Releaser, stream: Any, figures: Figures) -> None:
    """One wake-up, of a task that is waiting and a loop that is asleep."""
    releaser.held.launch(stream)
    began = perf_counter_ns()
    reached = follow(stream)
    figures.follows_us.append((perf_counter_ns() - began) / 1e3)
    releaser.ask()
    await reached
    woken = perf_counter_ns()
    figures.wakes_us.append((woken - releaser.held.ended_ns(releaser.released_ns)) / 1e3)


async def beside_python_ms(follow: Follow, held: Held, stream: Any) -> float:
    """How long a stream takes over 50 followed kernels while this thread never waits."""
    source = 'extern "C" __global__ void work(int n) { volatile int left = n; while (left > 0) left = left - 1; }'
    work, reached = driver.cupy().RawKernel(source, "work"), []
    with stream:
        work((1,), (1,), (np.int32(1),))
        stream.synchronize()
        held.launch(stream)
        for _ in range(50):
            work((1,), (1,), (np.int32(200_000),))
            reached.append(follow(stream))
    last = new_event()
    last.record(stream)
    await trio.sleep(0.02)
    began, query = perf_counter(), driver.runtime().eventQuery
    held.release()
    while query(last.ptr) == driver.NOT_READY:
        for _ in range(10_000):
            pass
    took = perf_counter() - began
    for each in reached:
        await each
    return took * 1e3


async def cpu_shares(name: str, held: Held, streams: list[Any], seconds: float) -> tuple[float, float]:
    """What a tracker takes of a core while all streams are pending, and once nothing is."""
    ours, marks = tracker(f"{driver.platform_name()}:0", 0, name), []
    held.launch(streams[0])
    first = new_event()
    first.record(streams[0])
    for stream in streams:
        stream.wait_event(first)
        event = new_event()
        event.record(stream)
        marks.append(Mark())
        ours.follow(stream.ptr, event, marks[-1])
    pending = await _share(seconds)
    held.release()
    await wait_marks(marks)
    idle = await _share(seconds)
    ours.close()
    return pending, idle


async def _share(seconds: float) -> float:
    await trio.sleep(0.2)  # what came before is over
    began, used = perf_counter(), process_time()
    await trio.sleep(seconds)
    return (process_time() - used) / (perf_counter() - began)


async def measure(rounds: int, seconds: float, held: Held) -> dict[str, Figures]:
    """All ways taking turns, then the CPU each takes."""
    cuda = driver.cupy().cuda
    streams = [cuda.Stream(non_blocking=True) for _ in range(8)]
    ways = {name: way(name) for name in WAYS}
    follows = {BARE: bare()} | {name: follow for name, (follow, _) in ways.items()}
    figures = {name: Figures() for name in follows}
    releaser, order = Releaser(held), random.Random(0)
    try:
        for turn in range(rounds + 10):
            for name in order.sample(list(follows), len(follows)):  # none always comes after the same other
                await sample(follows[name], releaser, streams[0], figures[name] if turn >= 10 else Figures())
        for name, follow in follows.items():
            several = [await beside_python_ms(follow, held, streams[0]) for _ in range(3)]
            figures[name].beside_python_ms = statistics.median(several)
        for _, close in ways.values():
            close()
        for name in WAYS:
            figures[name].pending_cpu, figures[name].idle_cpu = await cpu_shares(name, held, streams, seconds)
    finally:
        held.release()
        releaser.close()
    return figures


def absent() -> str | None:
    """Why there is nothing to measure on, and what to do about it."""
    try:
        found = driver.runtime().getDeviceCount() > 0
    except ImportError:
        return "no CuPy here: pip install 'plait[cuda12]', 'plait[cuda13]' or 'plait[rocm]', as the GPU wants"
    except driver.runtime().CUDARuntimeError:
        found = False
    return None if found else "CuPy is installed and finds no GPU: install or load the GPU's driver"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 samples of each")
    rounds, cpu_s = (50, 0.3) if parser.parse_args().quick else (1000, 2.0)
    if reason := absent():
        print(f"wakeup: {reason}")
        return
    held = held_kernel()
    name = driver.runtime().getDeviceProperties(0)["name"].decode()
    heading(f"event to awaiting trio task on {name}, counted from {held.clock}; {rounds} samples of each, interleaved")
    began = perf_counter()
    with Others() as others:
        figures = trio.run(measure, rounds, cpu_s, held)
    basis = statistics.median(figures[BARE].wakes_us)
    print(f"{'':22}{'p50 µs':>9}{'p99 µs':>9}{'x bare':>8}{'follow µs':>11}{'busy ms':>9}", end="")
    print(f"{'CPU pending':>13}{'CPU idle':>10}")
    for name, each in figures.items():
        percentiles = statistics.quantiles(each.wakes_us, n=100)
        label = f"{name} (default)" if name == DEFAULT else name
        line = f"{label:22}{percentiles[49]:9.1f}{percentiles[98]:9.1f}{percentiles[49] / basis:8.2f}"
        line += f"{statistics.median(each.follows_us):11.1f}{each.beside_python_ms:9.1f}"
        print(line if name == BARE else f"{line}{each.pending_cpu:13.2%}{each.idle_cpu:10.2%}")
    print_others(others.seconds, perf_counter() - began)


if __name__ == "__main__":
    main()
