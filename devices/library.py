"""The function library: what a kernel's name means on each platform."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any, Literal, get_args

from plait.errors import PlanError

Function = Callable[..., Any]
Kind = Literal["kernel", "comparator", "reducer"]
_KINDS: tuple[str, ...] = get_args(Kind)

# Where a platform's own kernels register themselves, imported when the first of its names is looked up.
_HOMES = {
    "host": "plait.devices.host.kernels",
    "cuda": "plait.devices.gpu.kernels",
    "hip": "plait.devices.gpu.kernels",
}


class FunctionLibrary:
    """Functions by name, platform and kind. Names are case-sensitive, platforms are not.

    A name has one kind on all platforms: a ``kernel`` is what an item calls, a ``comparator`` says whether its first
    value goes before its second, a ``reducer`` makes one value of two. Kernels look the other two up by name.
    """

    def __init__(self) -> None:
        self._functions: dict[str, dict[str, Function]] = {}
        self._kinds: dict[str, Kind] = {}

    def register(self, name: str, platform: str, function: Function, *, kind: Kind = "kernel") -> None:
        """Let ``name`` mean ``function`` on ``platform``; PlanError for a taken name and for what is not callable."""
        if not isinstance(name, str) or not name:
            raise PlanError(f"a {kind} needs a non-empty name, not {name!r}")
        if kind not in _KINDS:
            raise PlanError(f"{name!r}: kind must be one of {', '.join(_KINDS)}, not {kind!r}")
        if not callable(function):
            raise PlanError(f"{kind} {name!r}: {function!r} is not callable")
        if self._kinds.get(name, kind) != kind:
            raise PlanError(f"{name!r} is a {self._kinds[name]} and cannot be a {kind} too: choose another name")
        known = self._functions.setdefault(name, {})
        if platform.lower() in known:
            raise PlanError(f"{kind} {name!r} is registered for {platform.lower()!r} already")
        self._kinds[name] = kind
        known[platform.lower()] = function

    def lookup(self, name: str, platform: str, *, kind: Kind = "kernel") -> Function:
        """The function. PlanError tells apart an unknown name (with near ones), one of another kind, and one that is
        unknown on this platform.
        """
        platforms = self._functions.get(name)
        if platforms is None:
            same = [known for known, its_kind in self._kinds.items() if its_kind == kind]
            near = difflib.get_close_matches(name, same, 3)
            hint = f"; near names: {', '.join(near)}" if near else ""
            raise PlanError(f"no {kind} is called {name!r}{hint}")
        if self._kinds[name] != kind:
            raise PlanError(f"{name!r} is a {self._kinds[name]}, not a {kind}")
        function = platforms.get(platform.lower())
        if function is None:
            raise PlanError(f"{kind} {name!r} exists for {', '.join(sorted(platforms))}, not for {platform.lower()!r}")
        return function

    def names(self, platform: str, *, kind: Kind = "kernel") -> tuple[str, ...]:
        """What is registered for a platform, sorted."""
        return tuple(
            sorted(
                name
                for name, known in self._functions.items()
                if platform.lower() in known and self._kinds[name] == kind
            )
        )


LIBRARY = FunctionLibrary()


def register(name: str, platform: str, function: Function, *, kind: Kind = "kernel") -> None:
    """Register in the library that plans are compiled with; see ``FunctionLibrary.register``.

    A platform's own kernels are there first, so a name that one of them has is a duplicate here.
    """
    _load(platform)
    LIBRARY.register(name, platform, function, kind=kind)


def lookup(name: str, platform: str, *, kind: Kind = "kernel") -> Function:
    """Look up in the library that plans are compiled with; see ``FunctionLibrary.lookup``."""
    _load(platform)
    return LIBRARY.lookup(name, platform, kind=kind)


def _load(platform: str) -> None:
    """Import the platform's own kernels, once; they register themselves in LIBRARY."""
    home = _HOMES.get(platform.lower())
    if home is not None:
        importlib.import_module(home)
