"""Check what a run is given for the inputs of its plan, before anything runs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np
from plait.devices.memory import Donation
from plait.errors import GraphError
from plait.graph import Buffer, Program
from plait.scheduler.deferred import Sized

_SCHEDULER_OPTIONS = (
    "devices",
    "streams",
    "policy",
    "memory_limit",
    "trace",
    "stall_after",
    "telemetry",
    "ranges",
    "costs",
)


def checked_inputs(program: Program, given: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[int]]:
    """The value of every input, and the slots of those that the caller has donated, which are taken.

    GraphError for one that is unknown, missing, or of the wrong shape or dtype, or donated and read-only; nothing has
    been taken then. Where an input declares a shape or a dtype, lists and scalars are made arrays; arrays are never
    converted.
    """
    name = program.graph.name
    inputs = program.inputs
    for key in given:
        if key in _SCHEDULER_OPTIONS and key not in inputs:
            raise GraphError(
                f"graph {name!r} has no input {key!r}; as an option of the scheduler it goes to "
                f"open_scheduler({key}=...), or to plait.run(graph, ..., scheduler={{{key!r}: ...}})"
            )
        if key not in inputs:
            near = difflib.get_close_matches(key, inputs, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            known = ", ".join(inputs) or "none"
            raise GraphError(f"graph {name!r} has no input {key!r} (its inputs: {known}){hint}")
    missing = [buffer for key, buffer in inputs.items() if key not in given]
    if missing:
        names = ", ".join(f"{buffer.name!r} (recorded at {buffer.site})" for buffer in missing)
        raise GraphError(f"graph {name!r} is missing input {names}")
    donations = {key: value for key, value in given.items() if isinstance(value, Donation)}
    values = {key: _checked(inputs[key], value.value if key in donations else value) for key, value in given.items()}
    for key in donations:
        if isinstance(values[key], np.ndarray) and not values[key].flags.writeable:
            raise GraphError(f"input {key!r} is donated and read-only: donate an array that may be written")
    for donation in {id(donation): donation for donation in donations.values()}.values():
        donation.take(f"a run of graph {name!r}")
    return values, frozenset(inputs[key].index for key in donations)


def _checked(buffer: Buffer, value: Any) -> Any:
    if (buffer.shape is None and buffer.dtype is None) or isinstance(value, Sized):
        return value
    place = f"input {buffer.name!r} (recorded at {buffer.site})"
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        try:
            array = np.asarray(value)
            if buffer.dtype is not None and np.can_cast(array.dtype, buffer.dtype, "same_kind"):
                array = array.astype(buffer.dtype)
        except (TypeError, ValueError) as error:
            raise GraphError(f"{place} must be an array: {error}") from None
        value = array
    if buffer.shape is not None and tuple(value.shape) != buffer.shape:
        raise GraphError(f"{place} must have shape {buffer.shape}, not {tuple(value.shape)}")
    if buffer.dtype is not None and value.dtype != buffer.dtype:
        raise GraphError(
            f"{place} must have dtype {buffer.dtype}, not {value.dtype}: pass value.astype({str(buffer.dtype)!r})"
        )
    return value
