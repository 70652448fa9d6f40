"""The function library: what a kernel's name means on each platform."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any

from plait.errors import PlanError

Function = Callable[..., Any]

# Where a platform's own kernels register themselves, imported when the first of its names is looked up.
_HOMES = {"host": "plait.devices.host.kernels"}


class FunctionLibrary:
    """Functions by name and platform. Names are case-sensitive, platforms are not."""

    def __init__(self) -> None:
        self._functions: dict[str, dict[str, Function]] = {}

    def register(self, name: str, platform: str, function: Function) -> None:
        """Let ``name`` mean ``function`` on ``platform``; PlanError for a taken name and for what is not callable."""
        if not isinstance(name, str) or not name:
            raise PlanError(f"a kernel needs a non-empty name, not {name!r}")
        if not callable(function):
            raise PlanError(f"kernel {name!r}: {function!r} is not callable")
        known = self._functions.setdefault(name, {})
        if platform.lower() in known:
            raise PlanError(f"kernel {name!r} is registered for {platform.lower()!r} already")
        known[platform.lower()] = function

    def lookup(self, name: str, platform: str) -> Function:
        """The function; PlanError that tells an unknown name (with near ones) from one unknown on this platform."""
        platforms = self._functions.get(name)
        if platforms is None:
            near = difflib.get_close_matches(name, self._functions, 3)
            hint = f"; near names: {', '.join(near)}" if near else ""
            raise PlanError(f"no kernel is called {name!r}{hint}")
        function = platforms.get(platform.lower())
        if function is None:
            raise PlanError(f"kernel {name!r} exists for {', '.join(sorted(platforms))}, not for {platform.lower()!r}")
        return function

    def names(self, platform: str) -> tuple[str, ...]:
        """What is registered for a platform, sorted."""
        return tuple(sorted(name for name, known in self._functions.items() if platform.lower() in known))


LIBRARY = FunctionLibrary()


def register(name: str, platform: str, function: Function) -> None:
    """Register in the library that plans are compiled with; see ``FunctionLibrary.register``."""
    LIBRARY.register(name, platform, function)


def lookup(name: str, platform: str) -> Function:
    """Look up in the library that plans are compiled with; see ``FunctionLibrary.lookup``."""
    home = _HOMES.get(platform.lower())
    if home is not None:
        importlib.import_module(home)
    return LIBRARY.lookup(name, platform)
