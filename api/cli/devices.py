"""``plait devices``: what this machine has, and why a platform is absent."""

from __future__ import annotations

import argparse
import json
from typing import Any

from plait.devices import HostDescription, platforms
from plait.scheduler.report import format_bytes


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("devices", help="list devices", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each device")
    parser.set_defaults(command_main=main)


def main(options: argparse.Namespace) -> int:
    """Print a line per device and per absent platform, or a JSON object per device."""
    for platform in platforms():
        if platform.absent and not options.json:
            print(f"{platform.name}: absent: {' '.join(platform.absent.split())}")
        for device in platform.devices():
            if options.json:
                print(as_json(device.description))
            else:
                print(f"{device.name}: {summary(device.description)}")
    return 0


def as_json(description: Any) -> str:
    """A description's own JSON; of another platform's that has none, its text."""
    return str(description.to_json()) if hasattr(description, "to_json") else json.dumps(str(description))


def summary(description: Any) -> str:
    """A description in one line; what is unknown is left out. Other platforms' say it themselves, by ``str``."""
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
