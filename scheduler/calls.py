"""What each item of a plan calls, in which kind of stream, and from and to which slots."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from operator import itemgetter
from types import FunctionType
from typing import Any

from plait.devices import library
from plait.errors import PlanError
from plait.graph import BARRIER, CALL, Access, Buffer, BufferSlice, WorkItem
from plait.graph.hazards import READ
from plait.scheduler.bind import ON_HOST, Binder, Getter, Place
from plait.scheduler.device_plan import transfer_call
from plait.scheduler.expand import HOST, Expansion, Transfer
from plait.scheduler.kinds import COMPUTE, COPY, IN, LAUNCH, LOOP, OUT
from plait.scheduler.place import Places


def bind_calls(
    binder: Binder, expansion: Expansion, order: list[int], places: Places
) -> tuple[list[int], list[Callable[..., Any]], list[Getter], list[int]]:
    kinds: list[int] = []
    calls: list[Callable[..., Any]] = []
    getters: list[Getter] = []
    outs: list[int] = []
    asynchronous: dict[int, int] = {}
    bind, plain = binder.bind, binder.plain
    where = [ON_HOST] + [
        Place(slots, {each: slots[index] for each, index in expansion.literals.items() if index in slots})
        for slots in expansion.slots[1:]
    ]
    on_host = not expansion.places
    for index in order:
        item = expansion.items[index]
        place = HOST if on_host else expansion.places[index]
        if isinstance(item, Transfer):
            kinds.append(3 * place + (OUT if item.target == HOST else LAUNCH if item.source is None else IN))
            calls.append(transfer_call)
            getters.append(itemgetter(slice(0, 0)))
            outs.append(item.target_slot)
            continue
        function = item.function
        if item.kind is CALL:
            if type(function) is str or hasattr(function, "on"):
                function = _lookup(item, "host" if place == HOST else places.devices[place - 1].platform)
            kind = asynchronous.get(id(function))
            if kind is None:
                kind = asynchronous[id(function)] = LOOP if is_async_callable(function) else COMPUTE
        else:
            kind = COMPUTE if item.kind == BARRIER else COPY
        kinds.append(kind if place == HOST else 3 * place + LAUNCH)
        slots = plain(item) if place == HOST else None
        if slots is not None:
            calls.append(function)
            getters.append(itemgetter(*slots))
            outs.append(item.first_result)
        else:
            call, getter, out = bind(item, function, where[place])
            calls.append(call)
            getters.append(getter)
            outs.append(out)
    return kinds, calls, getters, outs


def _lookup(item: WorkItem, platform: str) -> Callable[..., Any]:
    try:
        if hasattr(item.function, "on"):
            _check_writes(item)
            return item.function.on(platform)  # type: ignore[no-any-return]
        return library.lookup(item.function, platform)
    except PlanError as error:
        raise PlanError(f"item {item.name!r} (recorded at {item.site}): {error}") from None


def _check_writes(item: WorkItem) -> None:
    """A kernel from source says what it writes; PlanError if that was recorded as read only."""
    for index in getattr(item.function, "writes", None) or ():
        arg = item.args[index] if index < len(item.args) else None
        if isinstance(arg, Buffer | BufferSlice) or (isinstance(arg, Access) and arg.mode == READ):
            raise PlanError(
                f"the kernel writes its argument {index}, which was recorded as read: "
                "pass plait.update(...) of it, or plait.write(...) if it overwrites every element"
            )


def is_async_callable(function: Any) -> bool:
    """Whether calling ``function`` gives an awaitable: ``async def``, also behind partial, methods and ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, FunctionType):
        return inspect.iscoroutinefunction(function)
    if inspect.iscoroutinefunction(function):
        return True
    method = type(function).__dict__.get("__call__")
    return not isinstance(function, type) and inspect.iscoroutinefunction(method)
