"""Figures as people read them."""

from __future__ import annotations

from plait.devices.memory import format_bytes

__all__ = ["format_bytes", "format_seconds", "kind_of"]


def format_seconds(value: float) -> str:
    """Three figures and a unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def kind_of(name: str) -> str:
    """The kind of a stream: ``host/compute`` of ``host/compute:3``."""
    device, slash, rest = name.partition("/")
    return f"{device}/{rest.partition(':')[0]}" if slash else name
