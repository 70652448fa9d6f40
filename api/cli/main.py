"""``plait``: parse the command line and hand over to one file per command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import plait
from plait.cli import bench, devices, run, show, simulate, stress, trace
from plait.errors import PlaitError, RunFailed
from plait.stopping import second_ends_process

_COMMANDS = (devices, run, show, trace, simulate, bench, stress)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="plait", description="Run a program as a graph of work items.")
    top.add_argument("--version", action="version", version=f"plait {plait.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add_to(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for an error that plait explains, 130 for Ctrl-C."""
    options = parser().parse_args(arguments)
    try:
        with second_ends_process():
            return int(options.command_main(options))
    except BrokenPipeError:  # whoever read our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("plait: interrupted: the run was stopped and everything it held is freed", file=sys.stderr)
        return 130
    except RunFailed as failure:
        print(f"plait: {failure}", file=sys.stderr)
        return 1
    except PlaitError as error:
        print(f"plait: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
