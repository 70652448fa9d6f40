"""Capture: a sequence of calls becomes one graph of the driver, launched again with new inputs copied into place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from plait.devices.gpu import driver

Values = list[Any]
_RELAXED = 2  # the capture mode that allows allocation


@dataclass(frozen=True)
class Step:
    """One call of a segment: what to do with a run's values, under which name, in which of the segment's streams.

    ``behind`` are the earlier steps that it is ordered after, ``outs`` the slots that get new values.
    """

    name: str
    call: Callable[[Values], None]
    lane: int
    behind: tuple[int, ...]
    outs: tuple[int, ...]


@dataclass
class _Part:
    """Consecutive steps: one graph, or one step that has to be called each time."""

    start: int
    end: int
    graph: Any = None


@dataclass
class Segment:
    """Steps over the values of a run, called the first time, captured the second, launched from then on.

    ``inputs`` are slots that hold values before, ``written`` those of them that steps change in place, ``results`` the
    slots that others read afterwards. A launch copies the inputs into the arrays that were captured, and what was
    written or made out of them again, so nothing of a run shares memory with the next. Arrays of another shape or
    dtype, or plain values that are not the same, are captured anew. ``refused`` says what could not be captured.
    """

    steps: Sequence[Step]
    inputs: Sequence[int]
    written: Sequence[int]
    results: Sequence[int]
    slot_count: int  # of replicas; behind them come plain arguments, which are the same in all runs
    refused: dict[str, str] = field(default_factory=dict)
    launches: int = 0
    _warm: bool = False
    _parts: list[_Part] = field(default_factory=list)
    _static: Values = field(default_factory=list)
    _taken: tuple[Any, ...] | None = None
    _pool: Any = None
    _last: Any = None
    # Guards the captured memory: schedulers in several threads may run one plan, and each launch uses all of it.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, values: Values) -> None:
        """Do all steps on ``values``; on the current device, enqueued in the current stream."""
        with self._lock:
            stream = driver.cupy().cuda.get_current_stream()
            if not self._warm:  # compiles kernels, which a capture had better not
                for step in self.steps:
                    step.call(values)
                self._warm = True
                return
            signature = self._signature(values)
            if any(_is_opaque(values[slot]) for slot in self.inputs):
                for step in self.steps:  # what such a value holds may be another thing in each run
                    step.call(values)
                return
            if self._last is not None:
                stream.wait_event(self._last)  # another stream may have launched it
            if self._taken != signature:
                self._taken = None
                self._capture(values, stream)
                self._taken = signature
            self._launch(values, stream)
            self._last = stream.record(driver.cupy().cuda.Event(disable_timing=True))

    def _signature(self, values: Values) -> tuple[Any, ...]:
        """What a capture holds on to: shapes and dtypes of arrays, plain values themselves."""
        return tuple(_sign(values[slot]) for slot in self.inputs)

    def _launch(self, values: Values, stream: Any) -> None:
        static = self._static
        for slot in self.inputs:
            _assign(static[slot], values[slot])
        for part in self._parts:
            if part.graph is not None:
                part.graph.launch(stream)
                self.launches += 1
            elif not self._called(self.steps[part.start]):
                for step in self.steps[part.end :]:
                    step.call(static)
                self._taken = None  # what follows was captured for other shapes
                break
        for slot in self.written:
            _assign(values[slot], static[slot])
        for slot in self.results:
            values[slot] = _copied(static[slot])

    def _called(self, step: Step) -> bool:
        """Call a step that was not captured, its results put where graphs read them; whether they fit there."""
        static = self._static
        held = [static[slot] for slot in step.outs]
        step.call(static)
        if [_sign(value) for value in held] != [_sign(static[slot]) for slot in step.outs]:
            return False
        for slot, value in zip(step.outs, held, strict=True):
            _assign(value, static[slot])
            static[slot] = value
        return True

    def _capture(self, values: Values, stream: Any) -> None:
        cupy = driver.cupy()
        # Not the values of this run, which must not live as long as the capture does.
        self._static, self._parts = [None] * self.slot_count + values[self.slot_count :], []
        self._static[-2] = None  # the run itself
        self._pool = cupy.cuda.MemoryPool()
        for slot in self.inputs:
            self._static[slot] = _copied(values[slot])
        with cupy.cuda.using_allocator(self._pool.malloc):
            start = 0
            while start < len(self.steps):
                if self.steps[start].name in self.refused:
                    self._parts.append(_Part(start, start + 1))
                    self.steps[start].call(self._static)
                    start += 1
                    continue
                end = next(
                    (k for k in range(start, len(self.steps)) if self.steps[k].name in self.refused), len(self.steps)
                )
                before = list(self._static)
                graph, reached, error = _captured(self.steps, start, end, self._static, stream)
                if error is not None:
                    self.refused[self.steps[reached].name] = f"{type(error).__name__}: {error}"
                    self._static = before
                    continue  # once more, now split around the step that refused
                self._parts.append(_Part(start, end, graph))
                if end < len(self.steps):  # what comes next is called, and needs what the graph makes
                    graph.launch(stream)
                start = end


def _captured(
    steps: Sequence[Step], start: int, end: int, values: Values, stream: Any
) -> tuple[Any, int, Exception | None]:
    """The graph of some steps, or the step that refused and why."""
    cuda = driver.cupy().cuda
    lanes = {stream_lane: cuda.Stream(non_blocking=True) for stream_lane in {step.lane for step in steps[start:end]}}
    done: dict[int, Any] = {}
    at, error = start, None
    stream.begin_capture(_RELAXED)
    try:
        fork = stream.record(cuda.Event(disable_timing=True))
        for lane in lanes.values():
            lane.wait_event(fork)
        for at in range(start, end):
            step = steps[at]
            lane = lanes[step.lane]
            for other in step.behind:
                if other in done and steps[other].lane != step.lane:
                    lane.wait_event(done[other])
            with lane:
                step.call(values)
            for slot in step.outs:
                if _is_opaque(values[slot]):
                    raise TypeError(f"it returns a {type(values[slot]).__name__}, whose contents cannot be copied")
            done[at] = lane.record(cuda.Event(disable_timing=True))
        for lane in lanes.values():
            stream.wait_event(lane.record(cuda.Event(disable_timing=True)))
    except Exception as raised:  # whatever a step does that a capture does not take
        error = raised
    try:
        graph = stream.end_capture()
    except Exception as raised:
        return None, at, error or raised
    return graph, at, error


def _sign(value: Any) -> Any:
    if isinstance(value, driver.cupy().ndarray):
        return value.shape, value.dtype.str
    if isinstance(value, list | tuple):
        return tuple(_sign(part) for part in value)
    if isinstance(value, dict):
        return tuple((key, _sign(part)) for key, part in value.items())
    return type(value), repr(value)  # -0.0 is not 0.0, and nan is nan


def _is_opaque(value: Any) -> bool:
    """Whether a value may hold device memory or change, and plait cannot see into it."""
    if isinstance(value, list | tuple):
        return any(_is_opaque(part) for part in value)
    if isinstance(value, dict):
        return any(_is_opaque(part) for part in value.values())
    plain = isinstance(value, int | float | complex | str | bytes | np.generic) or value is None
    return not plain and not isinstance(value, driver.cupy().ndarray)


def _assign(target: Any, source: Any) -> None:
    if isinstance(target, list | tuple):
        for into, part in zip(target, source, strict=True):
            _assign(into, part)
    elif isinstance(target, dict):
        for key, into in target.items():
            _assign(into, source[key])
    elif isinstance(target, driver.cupy().ndarray) and target is not source:
        target[...] = source


def _copied(value: Any) -> Any:
    if isinstance(value, list | tuple):
        parts = [_copied(part) for part in value]
        return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return value.copy() if isinstance(value, driver.cupy().ndarray) else value
