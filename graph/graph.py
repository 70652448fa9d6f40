"""The graph a user records: calls in program order become work items with declared accesses."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from sys import _getframe
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import networkx as nx
import numpy as np
from plait.errors import GraphError
from plait.graph.buffer import (
    BUFFER,
    CONSTANT,
    INPUT,
    RESULT_DECLARED,
    Buffer,
    BufferSlice,
    Declared,
)
from plait.graph.declare import access, check_options_among, check_own, declare
from plait.graph.hazards import READ, WRITE
from plait.graph.item import BARRIER, CALL, COPY, FILL, Sites, WorkItem
from plait.graph.options import DEFAULT, SHAREABLE, Options, merged
from plait.graph.region import Region
from plait.graph.work import Work

if TYPE_CHECKING:
    from plait.graph.drawing import View
    from plait.graph.program import Program

RECORDED_EVERY = 16  # to read the clock for each item would cost a twentieth of recording it
_ONE_READ = bytes([READ])
_ONE_WRITE = bytes([WRITE])


class Graph:
    """A program as a graph of work items, recorded in program order.

    Recording never runs anything. Calls whose accesses do not conflict are free to run side by side; those that do
    keep their program order, so every run gives what the program run line by line would give.
    """

    def __init__(self, name: str = "graph") -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"a graph needs a non-empty name, not {name!r}")
        self.name = name
        self.items: list[WorkItem] = []
        self.declared: dict[int, Buffer] = {}  # the buffers that are no results, by index
        self.buffer_items = array("q")  # by buffer, the item whose result it is, or -1
        self.outputs: dict[str, Buffer | BufferSlice] = {}
        self.group_limits: dict[str, int | None] = {}
        self.regions: dict[int, Region] = {}
        self.explicit: list[tuple[int, int]] = []
        self.mutated: set[int] = set()
        self.unwritten: set[int] = set()
        # Flat accesses: item i's are access_buffers[offsets[i]:offsets[i + 1]], with access_modes beside.
        self.offsets = array("q", [0])
        self.access_buffers = array("q")
        self.access_modes = array("b")
        self.recorded_ns = array("q")  # of every 16th item: when it was recorded, of perf_counter_ns
        self.running = 0
        # Each scheduler's plan of this graph. Here, not there: a plan holds its graph, and would keep it for ever.
        self.plans: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._buffer_names: dict[str, int] = {}
        self._item_names: dict[str, int] = {}
        self.resources: dict[str, int] = {}
        self._sites = Sites()
        self._options = DEFAULT
        self._last_barrier: int | None = None
        self._program: Program | None = None

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.items)} items, {len(self.buffer_items)} buffers>"

    # ---- buffers ----------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Any = None, dtype: Any = None) -> Buffer:
        """A buffer bound when the graph is run. ``shape`` and ``dtype``, where given, are checked then."""
        return self._buffer(_getframe(1), INPUT, name, shape, dtype, None)

    def constant(self, value: Any, name: str | None = None) -> Buffer:
        """A buffer bound now: a writable array is copied, so that later changes to it do not reach the graph."""
        if isinstance(value, Buffer | BufferSlice):
            raise GraphError(f"constant() takes a value, and {value.name!r} is already a buffer")
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value = value.copy()
            value.flags.writeable = False
        shape = value.shape if isinstance(value, np.ndarray) else None
        dtype = value.dtype if isinstance(value, np.ndarray) else None
        return self._buffer(_getframe(1), CONSTANT, name, shape, dtype, value)

    def buffer(self, name: str, shape: Any, dtype: Any = "float64", fill: Any = None) -> Buffer:
        """A buffer that each run allocates, filled with ``fill``; without one it must be written before it is read."""
        return self._buffer(_getframe(1), BUFFER, name, shape, dtype, fill)

    def _buffer(self, frame: FrameType, kind: str, name: str | None, shape: Any, dtype: Any, value: Any) -> Buffer:
        site = self._site(frame)
        self._refuse_while_running(site)
        if name is None and kind is CONSTANT:
            name = f"constant#{len(self.buffer_items)}"
        if not isinstance(name, str) or not name.strip():
            raise GraphError(f"{kind} recorded at {self.site(site)} needs a non-empty name, not {name!r}")
        self._claim(self._buffer_names, name, kind, site)
        try:
            shape = None if shape is None else _shape(shape)
            dtype = None if dtype is None else np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise GraphError(f"{kind} {name!r} recorded at {self.site(site)}: {error}") from error
        buffer = Buffer(self, len(self.buffer_items), None, Declared(kind, name, shape, dtype, value, site))
        self.declared[buffer.index] = buffer
        self.buffer_items.append(-1)
        if kind is BUFFER and value is None:
            self.unwritten.add(buffer.index)
        return buffer

    def output(self, name: str, value: Buffer | BufferSlice) -> None:
        """Name ``value`` as an output: a run returns it under ``name`` and keeps it until then."""
        site = self._site(_getframe(1))
        self._refuse_while_running(site)
        place = f"output {name!r} recorded at {self.site(site)}"
        if not isinstance(name, str) or not name.strip():
            raise GraphError(f"{place} needs a non-empty name")
        if name in self.outputs:
            raise GraphError(f"{place}: there is an output of that name already")
        if not isinstance(value, Buffer | BufferSlice):
            raise GraphError(f"{place} must be a buffer or a slice of one, not {type(value).__name__}")
        buffer = value.buffer if isinstance(value, BufferSlice) else value
        check_own(self, buffer, place)
        if buffer.index in self.unwritten:
            raise GraphError(f"{place}: nothing ever writes buffer {buffer.name!r}")
        self.outputs[name] = value

    # ---- items ------------------------------------------------------------------------------------------------

    def call(self, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Record a call of ``work`` and return the buffer of its result (a tuple of them with ``outputs=n``).

        Buffers among the arguments, also inside lists, tuples and dicts, are read; ``plait.write`` and
        ``plait.update`` say otherwise. ``work`` is any callable, an ``async def``, or the name of a kernel.
        """
        return self._record(_getframe(1), self._options, work, args, kwargs)

    def copy(self, target: Buffer | BufferSlice, source: Any) -> WorkItem:
        """Record a copy of ``source`` (a buffer, a slice or an array) into ``target``, on a copy stream."""
        return self._transfer(_getframe(1), self._options, COPY, target, source)

    def fill(self, target: Buffer | BufferSlice, value: Any) -> WorkItem:
        """Record a fill of ``target`` with the scalar ``value``, on a copy stream."""
        return self._transfer(_getframe(1), self._options, FILL, target, value)

    def barrier(self) -> WorkItem:
        """Record a barrier: all items recorded before it finish before any recorded after it starts."""
        site = self._site(_getframe(1))
        self._refuse_while_running(site)
        first = 0 if self._last_barrier is None else self._last_barrier
        item = self._append(BARRIER, None, (), None, Options(name=None, groups=()), site)
        self.explicit.extend((before, item.index) for before in range(first, item.index))
        self._last_barrier = item.index
        return item

    def options(self, **options: Any) -> Recorder:
        """What is recorded on the returned object has these options; ``plait.graph.options`` says what each means."""
        return Recorder(self, self._merged(_getframe(1), self._options, options))

    @contextmanager
    def defaults(self, **options: Any) -> Iterator[None]:
        """Options for what is recorded inside the ``with`` block."""
        outer = self._options
        self._options = self._merged(_getframe(2), outer, options, SHAREABLE)
        try:
            yield
        finally:
            self._options = outer

    @contextmanager
    def group(self, name: str, limit: int | None = None, **options: Any) -> Iterator[None]:
        """A named work group: shared options, and at most ``limit`` of its items in flight at once."""
        frame = _getframe(2)
        place = f"group {name!r} recorded at {self.site(self._site(frame))}"
        if not isinstance(name, str) or not name.strip():
            raise GraphError(f"{place} needs a non-empty name")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise GraphError(f"{place}: limit must be an integer of at least 1 or None, not {limit!r}")
        known = self.group_limits.setdefault(name, limit)
        if known != limit:
            raise GraphError(f"{place}: its limit is {known!r} already and cannot become {limit!r}")
        outer = self._options
        inner = self._merged(frame, outer, options, SHAREABLE)
        if name not in inner.groups:
            inner = Options(**{**_fields(inner), "groups": (*inner.groups, name)})
        self._options = inner
        try:
            yield
        finally:
            self._options = outer

    # ---- views ------------------------------------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, int, int]:
        """Changes whenever something is recorded."""
        return len(self.items), len(self.buffer_items), len(self.outputs)

    @property
    def dag(self) -> nx.DiGraph[str]:
        """The networkx view, frozen: node → ``item``, edge → ``hazards`` (words) and ``nbytes``."""
        from plait.graph.interop import to_networkx  # noqa: PLC0415  interop imports this module

        return to_networkx(self.program())

    def show(self, *, color: str | None = None, fold: bool | Collection[str] | None = None) -> View:
        """A picture of the graph, for a notebook cell or ``.save(path)``; see docs/notebooks.md.

        Boxes are coloured by ``"device"``, ``"group"`` or ``"name"`` (names less their numbers). ``fold`` says which
        groups are one box each: some names, True for all, False for none; None folds only what is too large to read.
        GraphError for a colour or a group that there is not, and for more boxes than can be laid out.
        """
        from plait.graph.drawing import graph_view  # noqa: PLC0415  drawing imports this module's neighbours

        return graph_view(self.program(), color, fold)

    def _repr_html_(self) -> str:
        return self.show().html

    def _repr_svg_(self) -> str:
        return self.show().svg

    @staticmethod
    def from_networkx(dag: nx.DiGraph[Any], name: str = "graph") -> Graph:
        """A graph from a DiGraph whose nodes carry ``work=callable``; see ``plait.graph.interop``."""
        from plait.graph.interop import from_networkx  # noqa: PLC0415  interop imports this module

        return from_networkx(dag, name)

    def program(self) -> Program:
        """The checked, immutable snapshot that a plan is compiled from; cached until the graph changes."""
        from plait.graph.program import snapshot  # noqa: PLC0415  program imports this module

        if self._program is None or self._program.version != self.version:
            self._program = snapshot(self)
        return self._program

    def buffer_at(self, index: int) -> Buffer:
        """A handle on the buffer with that index."""
        item = self.buffer_items[index]
        return self.declared[index] if item < 0 else Buffer(self, index, self.items[item], RESULT_DECLARED)

    def site(self, index: int) -> str:
        """``file:line`` of an interned call site."""
        return self._sites.text(index)

    # ---- recording --------------------------------------------------------------------------------------------

    def _site(self, frame: FrameType) -> int:
        return self._sites.add(frame.f_code, frame.f_lasti)

    def _merged(
        self, frame: FrameType, base: Options, given: Mapping[str, Any], allowed: tuple[str, ...] | None = None
    ) -> Options:
        try:
            return merged(base, given) if allowed is None else merged(base, given, allowed)
        except GraphError as error:
            raise GraphError(f"{error} (recorded at {self.site(self._site(frame))})") from None

    def _refuse_while_running(self, site: int) -> None:
        if self.running:
            raise GraphError(
                f"graph {self.name!r} is running and cannot change (recorded at {self.site(site)}): "
                "wait for its runs to end, or record into a new graph"
            )

    def _claim(self, names: dict[str, int], name: str, what: str, site: int) -> None:
        if name in names:
            raise GraphError(
                f"duplicate name {name!r}: {what} recorded at {self.site(site)}, first used at {self.site(names[name])}"
            )
        names[name] = site

    def _append(
        self,
        kind: str,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        options: Options,
        site: int,
    ) -> WorkItem:
        index = len(self.items)
        item = WorkItem(self, index, kind, function, args, kwargs, options, site)
        if self._last_barrier is not None:
            self.explicit.append((self._last_barrier, index))
        if options.after:
            self.explicit.extend((self._item_of(before, item).index, index) for before in options.after)
        self.items.append(item)
        self.offsets.append(len(self.access_buffers))
        if not index % RECORDED_EVERY:
            self.recorded_ns.append(perf_counter_ns())
        return item

    def _item_of(self, before: Any, item: WorkItem) -> WorkItem:
        if isinstance(before, tuple) and before and isinstance(before[0], Buffer):
            before = before[0]
        found = before.item if isinstance(before, Buffer) else before
        if isinstance(before, str):
            found = next((each for each in self.items if each.name == before), None)
        if not isinstance(found, WorkItem) or found.graph is not self:
            raise GraphError(f"item {item.name!r} recorded at {item.site}: after={before!r} is no item of this graph")
        return found

    def _record(
        self, frame: FrameType, options: Options, work: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        site = self._sites.known.get((frame.f_code, frame.f_lasti), -1)
        if site < 0:
            site = self._site(frame)
        if self.running:
            self._refuse_while_running(site)
        if type(work) is Work:
            options, work = self._merged(frame, options, _unset(work.options, options)), work.function
        if not callable(work) and not (isinstance(work, str) and work):
            raise GraphError(
                f"item recorded at {self.site(site)}: {work!r} is not callable and not the name of a kernel"
            )
        first = len(self.buffer_items)
        read = [arg.index for arg in args if type(arg) is Buffer and arg.graph is self]
        if options is DEFAULT and len(read) == len(args) and not kwargs and not self.unwritten:
            # What most calls are: whole, written buffers in, one result out, nothing to check or to order.
            read.append(first)
            self.access_buffers.extend(read)
            self.access_modes.frombytes(_ONE_READ * len(args) + _ONE_WRITE)
            index = len(self.items)
            item = WorkItem(self, index, CALL, work, None, None, options, site, first)
            self.items.append(item)
            self.offsets.append(len(self.access_buffers))
            if not index % RECORDED_EVERY:
                self.recorded_ns.append(perf_counter_ns())
            self.buffer_items.append(index)
            if self._last_barrier is not None:
                self.explicit.append((self._last_barrier, index))
            return Buffer(self, first, item, RESULT_DECLARED)
        item = self._record_checked(options, site, work, args, kwargs)
        return item.outputs if options.outputs > 1 else item.outputs[0]

    def _record_checked(
        self, options: Options, site: int, work: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> WorkItem:
        if options.name is not None:
            self._claim(self._item_names, options.name, "item", site)
        mark = len(self.access_buffers)
        try:
            kept = declare(self, args, site, work)
            if kwargs:
                check_options_among(kwargs, work, self.site(site))
                declare(self, tuple(kwargs.values()), site, work, allow_uses=False)
            first = len(self.buffer_items)
            for index in range(first, first + options.outputs):
                self.access_buffers.append(index)
                self.access_modes.append(WRITE)
            item = self._append(CALL, work, kept, kwargs or None, options, site)
        except GraphError:
            self._undo(mark, options.name)
            raise
        item.first_result = first
        self.buffer_items.extend([item.index] * options.outputs)
        return item

    def _undo(self, mark: int, name: str | None) -> None:
        del self.access_buffers[mark:]
        del self.access_modes[mark:]
        for late in [late for late in self.regions if late >= mark]:
            del self.regions[late]
        if name is not None:
            self._item_names.pop(name, None)

    def _transfer(self, frame: FrameType, options: Options, kind: str, target: Any, source: Any) -> WorkItem:
        site = self._site(frame)
        self._refuse_while_running(site)
        place = f"{kind} recorded at {self.site(site)}"
        if not isinstance(target, Buffer | BufferSlice):
            raise GraphError(f"{place} needs a buffer or a slice of one as its target, not {type(target).__name__}")
        if options.name is not None:
            self._claim(self._item_names, options.name, kind, site)
        mark = len(self.access_buffers)
        try:
            shape = getattr(source, "shape", None)
            if kind is COPY and shape is not None and target.shape is not None and not _broadcasts(shape, target.shape):
                raise GraphError(f"{place}: shape {shape} does not fit into {target.name!r} of {target.shape}")
            declare(self, (source,), site, kind)
            access(self, target, WRITE, site, kind)
            return self._append(kind, kind, (target, source), None, options, site)
        except GraphError:
            self._undo(mark, options.name)
            raise


class Recorder:
    """What ``Graph.options`` returns: records with those options."""

    __slots__ = ("_graph", "_options")

    def __init__(self, graph: Graph, options: Options) -> None:
        self._graph = graph
        self._options = options

    def call(self, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As ``Graph.call``."""
        return self._graph._record(_getframe(1), self._options, work, args, kwargs)

    def copy(self, target: Buffer | BufferSlice, source: Any) -> WorkItem:
        """As ``Graph.copy``."""
        return self._graph._transfer(_getframe(1), self._options, COPY, target, source)

    def fill(self, target: Buffer | BufferSlice, value: Any) -> WorkItem:
        """As ``Graph.fill``."""
        return self._graph._transfer(_getframe(1), self._options, FILL, target, value)


def _unset(own: dict[str, Any], given: Options) -> dict[str, Any]:
    """A work's own options, less those that were given otherwise for this call."""
    return {name: value for name, value in own.items() if getattr(given, name) == getattr(DEFAULT, name)}


def _fields(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in Options.__slots__}


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    result = tuple(int(size) for size in sizes)
    if any(size < 0 or size != given for size, given in zip(result, sizes, strict=True)):
        raise ValueError(f"shape must be non-negative integers, not {shape!r}")
    return result


def _broadcasts(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(source, target) == tuple(target)
    except ValueError:
        return False
