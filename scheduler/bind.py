"""Turn recorded arguments into callables on a run's value table: ``function(*getter(values))`` for every item.

A run's values are one flat list: a slot per buffer, then slots for literal arguments, then the run's state and one
slot for what nobody reads. An item with plain positional arguments costs one ``itemgetter``; whatever needs more
(keywords, nested containers, slices, several outputs, retries) is packed once, when the plan is compiled.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from time import perf_counter
from typing import Any

import numpy as np
from plait.graph.access import Uses
from plait.graph.buffer import Access, Buffer, BufferSlice
from plait.graph.hazards import READ, UPDATE
from plait.graph.item import CALL, COPY, WorkItem
from plait.graph.program import Program
from plait.scheduler.aliasing import unshared
from plait.scheduler.attempts import Attempts

Values = list[Any]
Getter = Callable[[Values], Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item finds its values: slots of the replicas that it uses, and of arrays given as plain arguments."""

    slots: Mapping[int, int]
    literals: Mapping[int, int]

    def slot(self, buffer: int) -> int:
        """The slot of the replica of ``buffer`` here."""
        return self.slots.get(buffer, buffer)


ON_HOST = Place({}, {})


class Binder:
    """Compiles the items of one program to functions, getters and output slots over a shared value table."""

    def __init__(self, program: Program, slot_count: int, literals: Sequence[Any]) -> None:
        self.program = program
        self.template: Values = [None] * slot_count
        self.template[program.buffer_count : program.buffer_count + len(literals)] = literals
        for buffer in program.declared:
            if buffer.kind == "constant":
                self.template[buffer.index] = buffer.value
        self._mutates = bool(program.mutated)
        self._literals: dict[int, int] = {}

    @functools.cached_property
    def _wanted(self) -> set[int]:
        """The buffers that some item reads or that are outputs."""
        program = self.program
        read = set(program.access_buffers[(program.access_modes & READ) != 0].tolist())
        for value in program.outputs.values():
            read.add(value.buffer.index if isinstance(value, BufferSlice) else value.index)
        return read

    def slot_of(self, literal: Any) -> int:
        """The slot of a literal argument; equal identities share one."""
        slot = self._literals.get(id(literal))
        if slot is None:
            slot = self._literals[id(literal)] = len(self.template)
            self.template.append(literal)
        return slot

    def plain(self, item: WorkItem) -> Sequence[int] | None:
        """The slots of a host item's arguments, if they are two whole buffers or more and nothing else is asked for."""
        if self._mutates or not item.is_plain:
            return None
        slots = item.plain_slots()
        return slots if len(slots) > 1 else None

    def bind(self, item: WorkItem, function: Any, place: Place = ON_HOST) -> tuple[Callable[..., Any], Getter, int]:
        """``(call, getter, out)``: run the item by ``values[out] = call(*getter(values))``; out -1 keeps nothing."""
        if item.kind is not CALL:
            return self._bind_transfer(item, place)
        guarded = self._mutates and self._guarded(item)
        options = item.options
        if not (item.kwargs or guarded or options.outputs > 1 or options.retries or options.timeout is not None):
            slots = self._slots(item.args, place)
            if len(slots) == len(item.args):
                return function, _positional(slots), place.slot(item.first_result)
        return self._bind_packed(item, function, guarded, place)

    def _slots(self, args: tuple[Any, ...], place: Place) -> list[int]:
        """Slots of positional arguments, empty if one needs more than a slot."""
        slots = []
        for arg in args:
            if type(arg) is Buffer:
                slots.append(place.slot(arg.index))
            elif id(arg) in place.literals:
                slots.append(place.literals[id(arg)])
            elif isinstance(arg, list | tuple | dict | Access | BufferSlice | Uses):
                return []
            else:
                slots.append(self.slot_of(arg))
        return slots

    def _guarded(self, item: WorkItem) -> bool:
        """Whether a result that shares memory with an argument could later change under a reader's hands."""
        mutated = self.program.mutated
        if any(output.index in mutated for output in item.outputs):
            return True
        start, end = self.program.offsets[item.index], self.program.offsets[item.index + 1]
        return any(index in mutated for index in self.program.access_buffers[start:end].tolist())

    def _bind_transfer(self, item: WorkItem, place: Place) -> tuple[Callable[..., Any], Getter, int]:
        if item.kind not in ("copy", "fill"):
            return _nothing, _positional([]), -1
        target, source = _target(item.args[0], place), _argument(item.args[1], place)
        function = np.copyto if item.kind is COPY and place is ON_HOST else _fill

        def getter(values: Values) -> tuple[Any, Any]:
            return target(values), source(values)

        return function, getter, -1

    def _bind_packed(
        self, item: WorkItem, function: Any, guarded: bool, place: Place
    ) -> tuple[Callable[..., Any], Getter, int]:
        args = [_argument(arg, place) for arg in item.args if not isinstance(arg, Uses)]
        kwargs = [(key, _argument(value, place)) for key, value in (item.kwargs or {}).items()]

        def getter(values: Values) -> tuple[Any, list[Any], dict[str, Any]]:
            return values, [get(values) for get in args], {key: get(values) for key, get in kwargs}

        updated = [
            _target(access.target, place)
            for access in [*item.args, *(item.kwargs or {}).values()]
            if isinstance(access, Access) and access.mode == UPDATE
        ]
        outputs = [output.index for output in item.outputs]
        if len(outputs) == 1 and outputs[0] not in self._wanted:
            outputs, guarded = [], False  # as where a function updates in place and also returns what it updated
        outputs = [place.slot(output) for output in outputs]
        packed = Packed(item, function, outputs, guarded, updated if item.options.retries else [])
        return packed, getter, -1


class Packed:
    """A call that needs more than positional arguments: keywords, several outputs, retries, protection of aliases."""

    __slots__ = ("function", "guarded", "item", "outputs", "updated")

    def __init__(self, item: WorkItem, function: Any, outputs: list[int], guarded: bool, updated: list[Getter]) -> None:
        self.item = item
        self.function = function
        self.outputs = outputs
        self.guarded = guarded
        self.updated = updated

    def __call__(self, values: Values, args: list[Any], kwargs: dict[str, Any]) -> None:
        retries, timeout = self.item.options.retries, self.item.options.timeout
        if not retries and timeout is None:
            self.keep(values, args, kwargs, self.function(*args, **kwargs))
            return
        causes: list[Exception] = []
        saved = self.save(values)
        while True:
            began = perf_counter()
            try:
                result = self.function(*args, **kwargs)
                if timeout is not None and perf_counter() - began > timeout:
                    raise TimeoutError(f"took {perf_counter() - began:.3g} s, longer than its timeout of {timeout} s")
            except Exception as error:
                causes.append(error)
            else:
                self.keep(values, args, kwargs, result)
                return
            self.restore(saved)
            if len(causes) > retries or values[-2].stopping:
                raise Attempts(causes) from causes[-1]

    def save(self, values: Values) -> list[tuple[Any, Any]]:
        """What the item updates in place, copied, so that a second attempt starts from the same bytes."""
        return [(target, copy.deepcopy(target)) for target in (get(values) for get in self.updated)]

    def restore(self, saved: list[tuple[Any, Any]]) -> None:
        for target, before in saved:
            target[...] = before

    def keep(self, values: Values, args: list[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Store the result under the item's outputs; a wrong number of outputs is an error that says both numbers."""
        if self.guarded:
            result = unshared(result, [*args, *kwargs.values()])
        if not self.outputs:
            return
        parts = [result] if len(self.outputs) == 1 else _parts(result)
        if len(parts) != len(self.outputs):
            raise ValueError(f"the call was recorded with outputs={len(self.outputs)} and returned {len(parts)}")
        for slot, part in zip(self.outputs, parts, strict=True):
            values[slot] = part
        state = values[-2]  # None while a plan is captured
        if state is not None and state.traced:
            for slot in self.outputs:
                state.measure_slot(slot)


def _parts(result: Any) -> list[Any]:
    try:
        return list(result)
    except TypeError:
        return [result]


def _positional(slots: list[int]) -> Getter:
    """A getter of those slots' values as one sequence, made of C callables only."""
    if len(slots) > 1:
        return itemgetter(*slots)
    start = slots[0] if slots else 0  # a getter of one index gives the bare value, a slice gives a sequence
    return itemgetter(slice(start, start + len(slots)))


def _nothing() -> None:
    return None


def _fill(target: Any, value: Any) -> None:
    target[...] = value


def _argument(arg: Any, place: Place) -> Getter:
    """A function from the value table to the value of one recorded argument."""
    if isinstance(arg, Access):
        return _argument(arg.target, place) if arg.mode == READ else _target(arg.target, place)
    if isinstance(arg, Buffer):
        return itemgetter(place.slot(arg.index))
    if isinstance(arg, BufferSlice):
        index, keys = place.slot(arg.buffer.index), arg.keys
        if place is not ON_HOST:
            return lambda values: _element_copied(_sliced(values[index], keys))
        if len(keys) == 1:
            key = keys[0]
            return lambda values: values[index][key]
        return lambda values: _sliced(values[index], keys)
    if isinstance(arg, list | tuple | dict) and _holds_buffers(arg, place.literals):
        return _container(arg, place)
    if id(arg) in place.literals:
        return itemgetter(place.literals[id(arg)])
    return lambda values: arg


def _sliced(value: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _element_copied(value: Any) -> Any:
    """On a device one element is a view; NumPy gives a scalar, which what the item updates does not change."""
    return value.copy() if getattr(value, "ndim", None) == 0 else value


def _target(arg: Buffer | BufferSlice, place: Place) -> Getter:
    """Like ``_argument``, for what is written in place: one element is a 0-d view, not a copied scalar."""
    if isinstance(arg, Buffer):
        return itemgetter(place.slot(arg.index))
    index, keys = place.slot(arg.buffer.index), arg.keys
    last = keys[-1] if isinstance(keys[-1], tuple) else (keys[-1],)
    views = (*keys[:-1], last if Ellipsis in last else (*last, Ellipsis))
    return lambda values: _sliced(values[index], views)


def _container(arg: Any, place: Place) -> Getter:
    if isinstance(arg, dict):
        pairs = [(key, _argument(value, place)) for key, value in arg.items()]
        return lambda values: {key: get(values) for key, get in pairs}
    parts = [_argument(part, place) for part in arg]
    kind = type(arg)
    if hasattr(kind, "_make"):
        return lambda values: kind._make(get(values) for get in parts)
    make = tuple if isinstance(arg, tuple) else list
    return lambda values: make(get(values) for get in parts)


def _holds_buffers(arg: Any, literals: Mapping[int, int]) -> bool:
    seen: set[int] = set()
    stack = [arg]
    while stack:
        part = stack.pop()
        if isinstance(part, Buffer | BufferSlice | Access) or id(part) in literals:
            return True
        if isinstance(part, list | tuple | dict) and id(part) not in seen:
            seen.add(id(part))
            stack.extend(part.values() if isinstance(part, dict) else part)
    return False
