"""Copies hidden behind compute on a device: a pipeline of chunks (in, kernel, out) against its slowest engine's total.

python benchmarks/overlap.py [--quick]                                  on a GPU
python tests/hiprig/run.py python benchmarks/overlap.py [--quick]       on the rig

On the rig, bandwidths and kernel times are set so that each engine has the same to do; without overlap the pipeline
would take 3 times the slowest engine's total. Wanted: at most 1.10, and with a memory limit that allows only three
chunks on the device at once, at most 1.20: once with a result beside each chunk, once with chunks changed in place.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from typing import Any

import numpy as np
import plait
import trio
from harness import heading
from plait.devices.gpu.absent import absent_reason

CHUNK_BYTES = 1 << 16


def add_one(x: Any) -> None:
    """In place."""
    x += 1


def pipeline(chunks: int, device: str, seconds: float, in_place: bool) -> plait.Graph:
    """``chunks`` times: a chunk in, a kernel over it, its result out."""
    graph = plait.Graph("pipeline")
    for k in range(chunks):
        x = graph.input(f"x{k}", shape=(CHUNK_BYTES // 4,), dtype="float32")
        options = graph.options(device=device, cost=seconds)
        if in_place:
            options.call(add_one, plait.update(x))
        graph.output(f"y{k}", x if in_place else options.call(np.add, x, 1))
    return graph


def rig() -> Any:
    """The rig's control function, None on a GPU."""
    try:
        control = ctypes.CDLL("libamdhip64.so.7").hipcpu_control
    except (OSError, AttributeError):
        return None
    control.argtypes = [ctypes.c_char_p]
    return control


async def measure(
    device: str, chunks: int, repeats: int, seconds: float, held: int | None = None, in_place: bool = False
) -> tuple[float, float, float]:
    """Median makespan, and the totals of the slowest engine and of all engines, in seconds.

    ``held``: so many chunks' bytes are the memory limit.
    """
    graph = pipeline(chunks, device, seconds, in_place)
    inputs = {f"x{k}": np.full(CHUNK_BYTES // 4, k, np.float32) for k in range(chunks)}
    spans, slowest, totals = [], [], []
    limit = None if held is None else {device: held * CHUNK_BYTES}
    async with plait.open_scheduler(streams=2, memory_limit=limit) as scheduler:
        plan = scheduler.compile(graph)
        for repeat in range(repeats + 1):
            run = scheduler.start(plan, inputs)
            result = await run
            assert all(result[f"y{k}"][0] == k + 1 for k in range(chunks))
            if held is not None:
                assert run.memory[device].peak <= held * CHUNK_BYTES
                assert not run.memory[device].moved_out
            if repeat:
                busy: dict[str, float] = {}
                for use in run.report().streams:
                    role = use.name.partition("/")[2].partition(":")[0]
                    busy[role] = busy.get(role, 0.0) + use.busy_s
                spans.append(run.trace.makespan_ns / 1e9)
                slowest.append(max(busy.values()))
                totals.append(sum(busy.values()))
    return statistics.median(spans), statistics.median(slowest), statistics.median(totals)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    repeats = 2 if parser.parse_args().quick else 7
    name = "hip" if absent_reason("hip") is None else "cuda"
    reason = absent_reason(name)
    if reason is not None:
        print(f"no GPU: {reason}")
        return
    heading("overlap: 32 chunks, in, kernel, out")
    control, each_s = rig(), 8e-3
    if control is not None:
        print("on the rig: each engine takes 8 ms for a chunk")
        control(f"set gbps {CHUNK_BYTES / each_s / 1e9}".encode())
        control(f"set kernel_us {each_s * 1e6}".encode())
        control(b"set slots 1")
    span, slowest, total = trio.run(measure, f"{name}:0", 32, repeats, each_s)
    ideal = 32 * each_s if control is not None else slowest
    print(f"makespan            {span * 1e3:8.2f} ms")
    print(f"slowest engine      {ideal * 1e3:8.2f} ms{' as set' if control is not None else ' busy'}")
    print(f"all engines, summed {total * 1e3:8.2f} ms")
    print(f"makespan / slowest  {span / ideal:8.2f}   (wanted: at most 1.10; {34 / 32:.2f} is to fill and empty it)")
    for held, in_place, words in ((6, False, "chunk and result"), (3, True, "in place")):
        span, slowest, _ = trio.run(measure, f"{name}:0", 32, repeats, each_s, held, in_place)
        ideal = 32 * each_s if control is not None else slowest
        print(f"three chunks at once, {words:<16} makespan / slowest {span / ideal:.2f}   (wanted: at most 1.20)")


if __name__ == "__main__":
    main()
