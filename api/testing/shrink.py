"""Make a graph that fails smaller: items that nobody needs are left out, one after the other, while it still fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.graph import BARRIER, Access, Buffer, BufferSlice, Graph
from plait.graph.options import SHAREABLE


def shrunk(graph: Graph, fails: Callable[[Graph], bool]) -> Graph:
    """The smallest part of ``graph`` found for which ``fails`` is true; the graph itself if no part is."""
    kept, found = list(range(len(graph.items))), graph
    again = True
    while again:
        again = False
        step = max(1, len(kept) // 4)
        while step:
            start = len(kept)
            while start > 0:
                start = max(0, start - step)
                tried = _closed(graph, kept[:start] + kept[start + step :])
                if len(tried) == len(kept):
                    continue
                part = part_of(graph, tried)
                if part is not None and fails(part):
                    kept, found, again = tried, part, True
                    start = min(start, len(kept))
            step //= 2
    return found


def _closed(graph: Graph, kept: list[int]) -> list[int]:
    """Without the items that read what an item left out would have made."""
    made: set[int] = set()
    closed = []
    for index in kept:
        item = graph.items[index]
        needed = {buffer.index for buffer in _buffers([*item.args, *(item.kwargs or {}).values()]) if buffer.item}
        if needed <= made:
            closed.append(index)
            made.update(output.index for output in item.outputs)
    return closed


def part_of(graph: Graph, kept: list[int]) -> Graph | None:
    """A new graph of some items, in their order, each with what it needs among them; None if it has no output left.

    Explicit orders (``after=``) and groups are left out; barriers stay.
    """
    part = Graph(graph.name)
    new: dict[int, Any] = {}
    for buffer in graph.declared.values():
        if buffer.kind == "input":
            new[buffer.index] = part.input(buffer.name, buffer.shape, buffer.dtype)
        elif buffer.kind == "constant":
            new[buffer.index] = part.constant(buffer.value, name=buffer.declared.name)
        elif buffer.kind == "buffer":
            new[buffer.index] = part.buffer(buffer.name, buffer.shape or (), buffer.dtype, fill=buffer.value)
    filled = {each.index for each in graph.declared.values() if each.kind != "buffer" or each.value is not None}
    for index in kept:
        item = graph.items[index]
        if item.kind == BARRIER:
            part.barrier()
            continue
        options = {name: getattr(item.options, name) for name in (*SHAREABLE, "outputs") if name != "after"}
        recorder = part.options(**options)
        args = [_renamed(arg, new) for arg in item.args]
        if item.kind in ("copy", "fill"):
            (recorder.copy if item.kind == "copy" else recorder.fill)(*args)
        else:
            kwargs = {key: _renamed(value, new) for key, value in (item.kwargs or {}).items()}
            made = recorder.call(item.function, *args, **kwargs)
            new.update(
                zip(
                    (output.index for output in item.outputs), made if isinstance(made, tuple) else (made,), strict=True
                )
            )
    for name, value in graph.outputs.items():
        buffer = value.buffer if isinstance(value, BufferSlice) else value
        if buffer.index in new and (buffer.item is not None or buffer.index in filled):
            part.output(name, _renamed(value, new))
    return part if part.outputs else None


def _buffers(parts: list[Any]) -> list[Buffer]:
    found, stack = [], list(parts)
    while stack:
        part = stack.pop()
        if isinstance(part, Access):
            part = part.target
        if isinstance(part, BufferSlice):
            part = part.buffer
        if isinstance(part, Buffer):
            found.append(part)
        elif isinstance(part, list | tuple):
            stack.extend(part)
        elif isinstance(part, dict):
            stack.extend(part.values())
    return found


def _renamed(arg: Any, new: dict[int, Any]) -> Any:
    """The argument with the new graph's buffers in place of the old one's."""
    if isinstance(arg, Access):
        return Access(_renamed(arg.target, new), arg.mode)
    if isinstance(arg, Buffer):
        return new[arg.index]
    if isinstance(arg, BufferSlice):
        value = new[arg.buffer.index]
        for key in arg.keys:
            value = value[key]
        return value
    if isinstance(arg, tuple) and hasattr(arg, "_make"):
        return arg._make(_renamed(part, new) for part in arg)
    if isinstance(arg, list | tuple):
        return type(arg)(_renamed(part, new) for part in arg)
    if isinstance(arg, dict):
        return {key: _renamed(value, new) for key, value in arg.items()}
    return arg
