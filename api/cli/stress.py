"""``plait stress``: random programs against the serial oracle for as long as asked."""

from __future__ import annotations

import argparse
from time import monotonic
from typing import Any

import trio
from plait.testing.soak import soak, soak_memory

_BATCH = 100


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("stress", help="soak test on this machine", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="first seed; a failure names the one to repeat")
    parser.add_argument("--items", type=int, default=40, help="items of each program")
    parser.add_argument("--memory", action="store_true", help="under tight memory limits, with failures and cancels")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Soak on 1, 2 and 7 streams in turn; an AssertionError names the seed."""
    end, seed, turns, moved = monotonic() + options.seconds, options.seed, 0, 0
    while monotonic() < end:
        streams = (1, 2, 7)[turns % 3]
        seeds = range(seed, seed + _BATCH)
        if options.memory:
            moved += trio.run(soak_memory, seeds, streams, options.items)
        else:
            trio.run(soak, seeds, streams, options.items)
        seed += _BATCH
        turns += 1
        under = f"; {moved} moved bytes out of their way" if options.memory else ""
        print(f"{seed - options.seed} programs, all equal to the serial oracle{under}", flush=True)
    return 0
