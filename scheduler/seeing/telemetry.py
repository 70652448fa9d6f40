"""Metrics and spans of a scheduler's runs by OpenTelemetry's API, the extra ``plait[telemetry]``.

Names follow its semantic conventions: ``plait.`` and what is measured, units in UCUM (``s``, ``By``, ``{item}``),
``error.type`` on what failed. Where they go is the application's business: it installs a provider, of OpenTelemetry's
SDK for instance, and without one all of this is dropped. Everything is recorded when a run begins or ends, nothing per
item.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from plait.errors import PlaitError, PlanError, RunFailed
from plait.scheduler.kinds import KIND_WORDS

if TYPE_CHECKING:
    from plait.devices import Device
    from plait.scheduler.run import Run

_GRAPH = "plait.graph.name"
_SECONDS = [1e-5, 1e-4, 1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0]
_BYTES = [float(1 << shift) for shift in range(10, 42, 3)]

# An observer belongs to the process: the API keeps the first of a name and cannot take it back. The lock guards the
# set, which exporters read on threads of their own.
_lock = threading.Lock()
_open: set[Telemetry] = set()


def find_telemetry(telemetry: bool | str, devices: Callable[[], Iterable[Device]]) -> Telemetry | None:
    """What ``open_scheduler(telemetry=...)`` asks for; PlanError for another word, PlaitError without the package."""
    if telemetry is False:
        return None
    if telemetry is not True and telemetry != "items":
        raise PlanError(f"telemetry must be True, False or 'items' (a span for each item too), not {telemetry!r}")
    try:
        import opentelemetry.metrics  # noqa: PLC0415  an extra
        import opentelemetry.trace  # noqa: F401, PLC0415
    except ImportError:
        raise PlaitError("telemetry needs OpenTelemetry's API: pip install 'plait[telemetry]'") from None
    return Telemetry(telemetry == "items", devices)


class Telemetry:
    """The instruments of one scheduler."""

    def __init__(self, items: bool, devices: Callable[[], Iterable[Device]]) -> None:
        from opentelemetry import metrics, trace  # noqa: PLC0415  an extra

        self._items = items
        self._devices = devices
        self._tracer = trace.get_tracer("plait")
        meter = metrics.get_meter("plait")
        seconds: dict[str, Any] = {"unit": "s", "explicit_bucket_boundaries_advisory": _SECONDS}
        nbytes: dict[str, Any] = {"unit": "By", "explicit_bucket_boundaries_advisory": _BYTES}
        self._duration = meter.create_histogram("plait.run.duration", description="Time of runs", **seconds)
        self._compile = meter.create_histogram("plait.compile.duration", description="Time of compiling", **seconds)
        self._active = meter.create_up_down_counter("plait.run.active", unit="{run}", description="Runs under way")
        self._count = meter.create_counter("plait.item.count", unit="{item}", description="Items that ended, by state")
        self._copied = meter.create_counter("plait.copy.io", unit="By", description="Bytes that traced runs copied")
        self._peak = meter.create_histogram("plait.run.memory.peak", description="Peaks of traced runs", **nbytes)
        meter.create_observable_up_down_counter(
            "plait.memory.usage", [_observe_usage], "By", "Bytes that allocators gave"
        )
        meter.create_observable_counter(
            "plait.memory.allocations", [_observe_allocations], "{allocation}", "Allocations so far"
        )
        with _lock:
            _open.add(self)

    def compiled(self, graph: str, seconds: float) -> None:
        """A plan was made."""
        self._compile.record(seconds, {_GRAPH: graph})

    def began(self, run: Run) -> Any:
        """A run begins, under the span that is current here; gives what ``ended`` needs."""
        graph = run.plan.program.graph.name
        self._active.add(1, {_GRAPH: graph})
        attributes = {_GRAPH: graph, "plait.run.items": len(run.plan.calls), "plait.run.priority": run._state.priority}
        return self._tracer.start_span(f"run {graph}", attributes=attributes)

    def ended(self, run: Run, span: Any) -> None:
        """A run has ended, one way or another."""
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415  an extra

        state, graph = run._state, run.plan.program.graph.name
        seconds = max(0, state.end_ns - state.begin_ns) / 1e9 if state.begin_ns else 0.0
        error = run._error
        failed = {} if error is None else {"error.type": type(error).__qualname__}
        self._active.add(-1, {_GRAPH: graph})
        self._duration.record(seconds, {_GRAPH: graph, **failed})
        progress = run.progress
        for word in ("done", "failed", "skipped"):
            if number := getattr(progress, word):
                self._count.add(number, {_GRAPH: graph, "plait.item.state": word})
        if state.traced:
            self._trace_figures(run, span, graph)
        if error is not None:
            span.set_attributes(failed)
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, error.message if isinstance(error, RunFailed) else str(error)))
        span.end()

    def _trace_figures(self, run: Run, span: Any, graph: str) -> None:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415  an extra

        trace = run.finished_trace()
        copies = trace.records["kind"] == 1
        if nbytes := int(trace.details["nbytes"][copies].sum()):
            self._copied.add(nbytes, {_GRAPH: graph})
        self._peak.record(trace.report().peak_bytes or 0, {_GRAPH: graph})
        if not self._items or not span.is_recording():
            return
        context = set_span_in_context(span)
        columns = (trace.records[name].tolist() for name in ("item", "stream", "kind", "start_ns", "end_ns"))
        for item, stream, kind, start, end in zip(*columns, strict=True):
            attributes: dict[str, Any] = {
                "plait.stream.name": trace.streams[stream],
                "plait.item.kind": KIND_WORDS[kind],
            }
            if trace.sites:
                path, _, line = trace.sites[item].rpartition(":")
                attributes |= {"code.file.path": path, "code.line.number": int(line)}
            began = trace.epoch_ns + start
            child = self._tracer.start_span(trace.names[item], context, attributes=attributes, start_time=began)
            child.end(trace.epoch_ns + end)

    def close(self) -> None:
        """Observe nothing more."""
        with _lock:
            _open.discard(self)

    def figures(self, figure: str) -> dict[str, int]:
        """One figure of each device's allocator, by the device's name."""
        return {device.name: device.allocator.statistics()[figure] for device in self._devices()}


def _observed(figure: str) -> list[Any]:
    from opentelemetry.metrics import Observation  # noqa: PLC0415  an extra

    with _lock:
        found = {name: value for telemetry in _open for name, value in telemetry.figures(figure).items()}
    return [Observation(value, {"plait.device.name": name}) for name, value in found.items()]


def _observe_usage(options: Any) -> list[Any]:
    return _observed("in_use")


def _observe_allocations(options: Any) -> list[Any]:
    return _observed("allocations")
