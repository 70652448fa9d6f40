"""``plait devices``: what this machine has, and why a platform is absent."""

from __future__ import annotations

import argparse
from typing import Any

from plait.devices import devices, platforms


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("devices", help="list devices", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the descriptions as JSON")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Print a line per device and per absent platform."""
    for device in devices():
        print(device.description.to_json() if options.json else f"{device.name}: {device.description}")
    if not options.json:
        for platform in platforms():
            if platform.absent:
                print(f"{platform.name}: absent: {platform.absent}")
    return 0
