"""Platforms with one thing broken: what the conformance suite is tested with.

``MUTATIONS`` maps a name to the test that must catch it and to what makes the platform.
"""

from __future__ import annotations

import broken_events
import broken_memory
import broken_streams
from broken_base import MUTATIONS, PATIENCE_S
from plait.devices.host.platform import HostPlatform

__all__ = ["MUTATIONS", "PATIENCE_S", "broken", "broken_events", "broken_memory", "broken_streams"]


def broken() -> HostPlatform:
    """For ``pytest --plait-platform=broken_platform:broken``."""
    return MUTATIONS["FreesTwice"][1]()
