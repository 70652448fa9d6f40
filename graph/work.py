"""``plait.work``: a function that records itself when called on buffers, and computes when called on values."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plait.errors import GraphError
from plait.graph.buffer import Access, Buffer, BufferSlice
from plait.graph.options import DEFAULT, NAMES, merged

if TYPE_CHECKING:
    from plait.graph.graph import Graph


class Work:
    """A function with options; made by ``plait.work``."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        if not callable(function):
            raise GraphError(f"plait.work() takes a callable, not {function!r}")
        merged(DEFAULT, options)
        self.function = function
        self.options = options
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        graph = _graph_among([*args, *kwargs.values()])
        if graph is None:
            return self.function(*args, **kwargs)
        return graph._record(sys._getframe(1), graph._options, self, args, kwargs)

    def __repr__(self) -> str:
        return f"<work {getattr(self.function, '__name__', self.function)!r} {self.options}>"


def work(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Give ``function`` options (see ``Graph.options``); also a decorator, with or without options.

    Called with a buffer, a slice or an access among its arguments, the result records itself on that buffer's
    graph and returns the result's buffer; called on anything else it just calls ``function``.
    """
    unknown = [name for name in options if name not in NAMES]
    if unknown:
        merged(DEFAULT, options)
    if function is None:
        return lambda given: Work(given, options)
    return Work(function, options)


def _graph_among(values: list[Any]) -> Graph | None:
    stack, seen = list(reversed(values)), set[int]()
    while stack:
        value = stack.pop()
        if isinstance(value, Access):
            value = value.target
        if isinstance(value, BufferSlice):
            return value.buffer.graph
        if isinstance(value, Buffer):
            return value.graph
        if isinstance(value, list | tuple | dict) and id(value) not in seen:
            seen.add(id(value))
            stack.extend(reversed(list(value.values() if isinstance(value, dict) else value)))
    return None
