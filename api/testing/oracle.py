"""The serial oracle: what a graph gives when its items run one after the other, in program order or another."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import trio
from plait.graph import Access, Buffer, BufferSlice, Graph, Uses


def run_serial(graph: Graph, /, order: Iterable[int] | None = None, **inputs: Any) -> dict[str, Any]:
    """Outputs of ``graph`` run serially by nothing but recorded calls; async items each get a loop of their own.

    ``order`` is a permutation of item indices, program order by default. Nothing here is shared with the scheduler:
    no plan, no edges, no value slots.
    """
    values: dict[int, Any] = {}
    for buffer in graph.declared.values():
        if buffer.kind == "input":
            values[buffer.index] = _copied(inputs[buffer.name])
        elif buffer.kind == "constant":
            values[buffer.index] = _copied(buffer.value)
        elif buffer.kind == "buffer":
            values[buffer.index] = np.empty(buffer.shape or (), buffer.dtype)
            if buffer.value is not None:
                values[buffer.index][...] = buffer.value
    for index in range(len(graph.items)) if order is None else order:
        item = graph.items[index]
        if item.kind == "copy":
            _resolve(item.args[0], values, in_place=True)[...] = _resolve(item.args[1], values)
        elif item.kind == "fill":
            _resolve(item.args[0], values, in_place=True)[...] = item.args[1]
        elif item.kind == "call":
            _store(item.outputs, _called(item, values), values)
    return {name: _copied(_resolve(value, values)) for name, value in graph.outputs.items()}


def _called(item: Any, values: dict[int, Any]) -> Any:
    args = [_resolve(arg, values) for arg in item.args if not isinstance(arg, Uses)]
    kwargs = {key: _resolve(value, values) for key, value in (item.kwargs or {}).items()}
    result = item.function(*args, **kwargs)
    if inspect.isawaitable(result):
        awaitable = result

        async def wait() -> Any:
            return await awaitable

        return trio.run(wait)
    return result


def _store(outputs: tuple[Buffer, ...], result: Any, values: dict[int, Any]) -> None:
    parts = [result] if len(outputs) == 1 else list(result)
    for buffer, part in zip(outputs, parts, strict=True):
        values[buffer.index] = _copied(part)


def _resolve(arg: Any, values: dict[int, Any], in_place: bool = False) -> Any:
    if isinstance(arg, Access):
        return _resolve(arg.target, values, in_place=arg.mode > 1)
    if isinstance(arg, Buffer):
        return values[arg.index]
    if isinstance(arg, BufferSlice):
        value = values[arg.buffer.index]
        for key in arg.keys[:-1]:
            value = value[key]
        last = arg.keys[-1] if isinstance(arg.keys[-1], tuple) else (arg.keys[-1],)
        if in_place and Ellipsis not in last:
            last = (*last, Ellipsis)
        return value[last if isinstance(value, np.ndarray) else arg.keys[-1]]
    if isinstance(arg, dict):
        return {key: _resolve(value, values) for key, value in arg.items()}
    if isinstance(arg, list | tuple):
        return type(arg)(_resolve(part, values) for part in arg)
    return arg


def _copied(value: Any) -> Any:
    """The value with memory of its own, as far as it can be copied."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.copy()
    if isinstance(value, list | tuple | dict | np.ndarray) or is_dataclass(value):
        with contextlib.suppress(TypeError):  # it holds a lock, a file, a generator
            return copy.deepcopy(value)
    return value
