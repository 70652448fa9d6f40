"""Ends the interpreter while events are followed: held for ever, or reached at about the time it ends.

python exit_pending.py WAY held|busy     prints "pending", exits with 0
"""

from __future__ import annotations

import sys

import cupy
import numpy as np
import trio
from plait.devices.gpu.completion import tracker
from plait.devices.mark import Mark
from plait.devices.waiting import wait_mark
from rig import control


async def main(name: str, state: str) -> None:
    """Follow events on 20 streams and return, without closing anything."""
    way = tracker("hip:0", 0, name)
    kernel = cupy.RawKernel('extern "C" __global__ void nop(int n) {}', "nop")
    control("set kernel_us 300")
    control("hold compute 0")
    streams, marks = [cupy.cuda.Stream(non_blocking=True) for _ in range(20)], []
    for _ in range(50):
        for stream in streams:
            with stream:
                kernel((1,), (1,), (np.int32(1),))
            event = cupy.cuda.Event(block=True, disable_timing=True)
            event.record(stream)
            marks.append(Mark())
            way.follow(stream.ptr, event, marks[-1])
    with trio.move_on_after(0.01):
        await wait_mark(marks[0])
    print("pending", flush=True)
    if state == "busy":
        control("release compute 0")


trio.run(main, *sys.argv[1:])
