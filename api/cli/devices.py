"""``plait devices``: what this machine has, and why a platform is absent."""

from __future__ import annotations

import argparse
from typing import Any

from plait.devices import HostDescription, devices, platforms
from plait.scheduler.report import format_bytes


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("devices", help="list devices", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the descriptions as JSON")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Print a line per device and per absent platform."""
    for device in devices():
        print(device.description.to_json() if options.json else f"{device.name}: {summary(device.description)}")
    if not options.json:
        for platform in platforms():
            if platform.absent:
                print(f"{platform.name}: absent: {platform.absent}")
    return 0


def summary(description: Any) -> str:
    """A description in one line; what is unknown is left out. Another platform's may say it itself by ``str``."""
    if not isinstance(description, HostDescription):
        return str(description)
    known = description
    caches = {cache.level: cache.size_bytes for cache in known.caches or () if cache.kind != "instruction"}
    parts = [
        known.model,
        known.architecture,
        known.usable_cores and f"{known.usable_cores} usable cores",
        known.threads_per_core and f"{known.threads_per_core} thread(s) a core",
        known.memory_bytes and f"{format_bytes(known.memory_bytes)} memory",
        known.numa_nodes and f"{len(known.numa_nodes)} NUMA node(s)",
        *(f"L{level} {format_bytes(size)}" for level, size in sorted(caches.items()) if size),
        known.vector_extensions and " ".join(known.vector_extensions),
    ]
    return ", ".join(str(part) for part in parts if part)
