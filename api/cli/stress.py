"""``plait stress``: random programs against the serial oracle for as long as asked."""

from __future__ import annotations

import argparse
from time import monotonic
from typing import Any

import trio
from plait.testing.soak import soak

_BATCH = 100


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("stress", help="soak test on this machine", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="first seed; a failure names the one to repeat")
    parser.add_argument("--items", type=int, default=40, help="items of each program")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Soak on 1, 2 and 7 streams in turn; an AssertionError names the seed."""
    end, seed, turns = monotonic() + options.seconds, options.seed, 0
    while monotonic() < end:
        streams = (1, 2, 7)[turns % 3]
        trio.run(soak, range(seed, seed + _BATCH), streams, options.items)
        seed += _BATCH
        turns += 1
        print(f"{seed - options.seed} programs, all equal to the serial oracle", flush=True)
    return 0
