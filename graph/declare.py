"""What an item's arguments say it reads, writes and uses: accesses appended to the graph's flat log."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.errors import GraphError
from plait.graph.access import Uses
from plait.graph.buffer import RESOURCE, Access, Buffer, BufferSlice, Declared
from plait.graph.hazards import READ, UPDATE, WRITE
from plait.graph.item import function_name
from plait.graph.options import NAMES

if TYPE_CHECKING:
    from plait.graph.graph import Graph

_LITERALS = frozenset({int, float, str, bool, bytes, complex, type(None), np.ndarray, np.float64, np.dtype})
_MODE_WORDS = {READ: "reads", WRITE: "writes", UPDATE: "updates"}


def declare(graph: Graph, args: tuple[Any, ...], site: int, work: Any, *, allow_uses: bool = True) -> tuple[Any, ...]:
    """Append the accesses found among ``args``; return them without ``uses`` declarations."""
    kept = args
    unwritten = graph.unwritten
    for arg in args:
        kind = type(arg)
        if kind is Buffer:
            if arg.graph is not graph or arg.index in unwritten:
                access(graph, arg, READ, site, work)
            graph.access_buffers.append(arg.index)
            graph.access_modes.append(READ)
        elif kind in _LITERALS:
            continue
        elif kind is BufferSlice:
            access(graph, arg, READ, site, work)
        elif kind is Access:
            access(graph, arg.target, arg.mode, site, work)
        elif kind is Uses:
            if not allow_uses:
                raise GraphError(f"item recorded at {graph.site(site)}: uses({arg.name!r}) goes among the arguments")
            _use(graph, arg)
            kept = tuple(other for other in kept if other is not arg)
        elif isinstance(arg, list | tuple | dict):
            _declare_nested(graph, arg, site, work)
    return kept


def check_options_among(kwargs: dict[str, Any], work: Any, place: str) -> None:
    """GraphError for keyword arguments that ``work`` does not take and that are the names of options."""
    for name, given in kwargs.items():
        if name in NAMES and not _takes(work, name):
            called = function_name(work)
            value = repr(given) if isinstance(given, int | float | str | None) else "..."
            raise GraphError(
                f"item {called!r} recorded at {place}: {called} takes no argument {name!r}. Options are given beside "
                f"the call: g.options({name}={value}).call({called}, ...)"
            )


def _takes(work: Any, name: str) -> bool:
    """Whether a function takes an argument by that name, as far as can be told."""
    if isinstance(work, str):
        return True
    try:
        parameters = inspect.signature(work, follow_wrapped=False).parameters  # what a wrapper takes is its own
    except (TypeError, ValueError):
        return True  # of a function in C that does not say
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return True
    found = parameters.get(name)
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def _declare_nested(graph: Graph, container: Any, site: int, work: Any) -> None:
    seen: set[int] = set()
    stack = [container]
    while stack:
        part = stack.pop()
        if isinstance(part, list | tuple | dict):
            if id(part) not in seen:
                seen.add(id(part))
                stack.extend(part.values() if isinstance(part, dict) else part)
        elif isinstance(part, Uses):
            raise GraphError(f"item recorded at {graph.site(site)}: uses({part.name!r}) goes among the arguments")
        elif isinstance(part, Access):
            access(graph, part.target, part.mode, site, work)
        elif isinstance(part, Buffer | BufferSlice):
            access(graph, part, READ, site, work)


def access(graph: Graph, target: Buffer | BufferSlice, mode: int, site: int, work: Any) -> None:
    buffer = target.buffer if type(target) is BufferSlice else target
    assert isinstance(buffer, Buffer)
    if buffer.graph is not graph or (mode != WRITE and buffer.index in graph.unwritten):
        place = f"item {function_name(work)!r} recorded at {graph.site(site)}"
        check_own(graph, buffer, place)
        raise GraphError(
            f"{place} {_MODE_WORDS[mode]} buffer {buffer.name!r} (from {buffer.site}) before anything "
            "writes it: give the buffer a fill, or write it first"
        )
    if type(target) is BufferSlice and target.region is not None:
        graph.regions[len(graph.access_buffers)] = target.region
    graph.access_buffers.append(buffer.index)
    graph.access_modes.append(mode)
    if mode != READ:
        graph.unwritten.discard(buffer.index)
        graph.mutated.add(buffer.index)


def _use(graph: Graph, use: Uses) -> None:
    index = graph.resources.get(use.name)
    if index is None:
        index = graph.resources[use.name] = len(graph.buffer_items)
        resource = Buffer(graph, index, None, Declared(RESOURCE, f"resource:{use.name}"))
        graph.buffer_items.append(-1)
        graph.declared[index] = resource
    graph.access_buffers.append(index)
    graph.access_modes.append(READ if use.shared else UPDATE)


def check_own(graph: Graph, buffer: Buffer, place: str) -> None:
    """GraphError if ``buffer`` belongs to another graph."""
    if buffer.graph is not graph:
        raise GraphError(
            f"{place}: buffer {buffer.name!r} belongs to graph {buffer.graph.name!r}, not to {graph.name!r}"
        )
