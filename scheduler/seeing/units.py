"""Figures as people read them."""

from __future__ import annotations


def format_seconds(value: float) -> str:
    """Three figures and a unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def format_bytes(value: int) -> str:
    """Three figures and a binary unit."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} B"


def kind_of(name: str) -> str:
    """The kind of a stream: ``host/compute`` of ``host/compute:3``."""
    device, slash, rest = name.partition("/")
    return f"{device}/{rest.partition(':')[0]}" if slash else name
