"""What the sources of a kernel can be: C++ text, a compiled module, a ``cupy.RawKernel``, a callable; by platform."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from plait.devices.signature import Signature, from_source, same_types
from plait.errors import PlanError

GPU_PLATFORMS = ("cuda", "hip")
MODULE_SUFFIXES = (".cubin", ".ptx", ".fatbin", ".hsaco", ".co")

Source = str | bytes | os.PathLike[str] | Callable[..., Any]


def by_platform(source: Mapping[str | tuple[str, ...], Source], kernel: str) -> dict[str, Source]:
    """The source of every platform that has one, ``"gpu"`` and tuples taken apart; PlanError for what is none."""
    if not isinstance(source, Mapping) or not source:
        raise PlanError(f"kernel {kernel!r}: source is a dict from platforms to sources, not {source!r}")
    result: dict[str, Source] = {}
    for key, value in source.items():
        for name in (key,) if isinstance(key, str) else key:
            for platform in GPU_PLATFORMS if name == "gpu" else (name,):
                if platform in result:
                    raise PlanError(f"kernel {kernel!r} has two sources for {platform}")
                if platform in GPU_PLATFORMS:
                    fits, kinds = callable(value) or is_launched(value), "C++ text, a compiled module or a callable"
                else:
                    fits, kinds = callable(value) and not is_launched(value), "a callable"
                if not fits or inspect.iscoroutinefunction(value):
                    raise PlanError(f"kernel {kernel!r}: its source for {platform} must be {kinds}, not {value!r}")
                result[platform] = value
    return result


def is_launched(source: Source) -> bool:
    """Whether a source is launched over groups of items; a callable launches what it wants itself."""
    return isinstance(source, str | bytes | os.PathLike) or is_raw_kernel(source)


def is_raw_kernel(source: object) -> bool:
    """Whether it is a ``cupy.RawKernel``, told without importing CuPy."""
    kind = type(source)
    return kind.__name__ == "RawKernel" and kind.__module__.partition(".")[0] == "cupy"


def module_path(source: Source) -> str | None:
    """The path of a compiled module, if the source is one."""
    if isinstance(source, os.PathLike):
        return os.fspath(source)
    return source if isinstance(source, str) and source.endswith(MODULE_SUFFIXES) and "\n" not in source else None


def cxx_text(source: Source) -> str | None:
    """The C++ text, if the source is one or was made of one."""
    if is_raw_kernel(source):
        source = getattr(source, "code", b"") or b""
    return source if isinstance(source, str) and module_path(source) is None else None


def read_signature(sources: Mapping[str, Source], kernel: str, given: Signature | None) -> Signature | None:
    """``given``, or what the C++ texts say; None if there are only callables.

    PlanError if a text takes something else, or if there is something to launch and no way to know what it takes.
    """
    found, first = given, "its signature"
    for platform, source in sources.items():
        text = cxx_text(source)
        if text is not None:
            read = from_source(text, getattr(source, "name", kernel))
            if isinstance(read, str):
                if found is None:
                    raise PlanError(f"kernel {kernel!r}: signature=(...) is needed for its {platform} source: {read}")
            elif found is None:
                found, first = read, f"its {platform} source"
            elif not same_types(found, read):
                raise PlanError(
                    f"kernel {kernel!r}: its {platform} source takes ({_types(read)}), {first} ({_types(found)})"
                )
    if found is None and any(map(is_launched, sources.values())):
        raise PlanError(f"kernel {kernel!r}: signature=(...) is needed, since a compiled module does not say it")
    return found


def _types(signature: Signature) -> str:
    return ", ".join(f"{each.dtype}{'[]' * each.array}" for each in signature)
