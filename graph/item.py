"""A work item: one node of the DAG, as it was recorded."""

from __future__ import annotations

from array import array
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.graph.buffer import Buffer
    from plait.graph.graph import Graph
    from plait.graph.options import Options

CALL, COPY, FILL, BARRIER = "call", "copy", "fill", "barrier"


class WorkItem:
    """A recorded call, copy, fill or barrier.

    ``function`` is what it calls (a string for a named kernel, None for a barrier), ``args`` and ``kwargs`` what was
    given, with buffers in place of values. ``outputs`` are the buffers that hold its results.
    """

    __slots__ = ("_args", "first_result", "function", "graph", "index", "kind", "kwargs", "options", "site_index")

    def __init__(
        self,
        graph: Graph,
        index: int,
        kind: str,
        function: Any,
        args: tuple[Any, ...] | None,
        kwargs: dict[str, Any] | None,
        options: Options,
        site_index: int,
        first_result: int = -1,
    ) -> None:
        self.graph = graph
        self.index = index
        self.kind = kind
        self.function = function
        self._args = args  # None: whole buffers, all read, which the graph's flat accesses tell as well
        self.kwargs = kwargs
        self.options = options
        self.site_index = site_index
        self.first_result = first_result

    @property
    def name(self) -> str:
        """The name given, else the function's name with the item's number: ``multiply#3``."""
        return self.options.name or f"{function_name(self.function) or self.kind}#{self.index}"

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The buffers of its results; none for a copy, a fill or a barrier."""
        if self.first_result < 0:
            return ()
        first, graph = self.first_result, self.graph
        return tuple(graph.buffer_at(index) for index in range(first, first + self.options.outputs))

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments as given, less ``uses`` declarations."""
        if self._args is not None:
            return self._args
        return tuple(self.graph.buffer_at(index) for index in self.plain_slots())

    @property
    def is_plain(self) -> bool:
        """Whether its arguments are whole buffers, all of them read, and nothing else."""
        return self._args is None

    def plain_slots(self) -> array[int]:
        """Indices of the buffers that a plain item is given."""
        graph = self.graph
        return graph.access_buffers[graph.offsets[self.index] : graph.offsets[self.index + 1] - 1]

    @property
    def site(self) -> str:
        """``file:line`` that recorded it."""
        return self.graph.site(self.site_index)

    def __repr__(self) -> str:
        return f"<WorkItem {self.name!r} recorded at {self.site}>"


def function_name(function: Any) -> str:
    """A short readable name for any callable, empty for None."""
    while function is not None and not isinstance(function, str):
        name = getattr(function, "__name__", None)
        if name is not None:
            return str(name)
        inner = getattr(function, "func", None)
        if inner is None:
            return type(function).__name__
        function = inner
    return function or ""


class Sites:
    """Interned call sites: code object and instruction offset now, ``file:line`` only when someone asks."""

    __slots__ = ("_sites", "known")

    def __init__(self) -> None:
        self.known: dict[tuple[CodeType, int], int] = {}
        self._sites: list[tuple[CodeType, int]] = []

    def add(self, code: CodeType, offset: int) -> int:
        key = (code, offset)
        index = self.known.get(key)
        if index is None:
            index = self.known[key] = len(self._sites)
            self._sites.append(key)
        return index

    def text(self, index: int) -> str:
        code, offset = self._sites[index]
        line = code.co_firstlineno
        for start, end, number in code.co_lines():
            if start <= offset < end and number is not None:
                line = number
        return f"{code.co_filename}:{line}"
