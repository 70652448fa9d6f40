"""Why there is no GPU platform, and what to install or free."""

from __future__ import annotations

from plait.devices.gpu import driver


def absent_reason(name: str) -> str | None:
    """One line, None if the platform is there."""
    try:
        found = driver.platform_name()
    except ImportError as error:
        return f"CuPy is not installed: {error}"
    return None if found == name else f"the installed CuPy is for {found}"
