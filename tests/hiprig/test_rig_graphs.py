"""Streams captured into graphs on the rig, and what spoils a capture."""

from __future__ import annotations

import pytest
from rig_kit import add, double, number, runtime, stream, value

CAPTURE_UNSUPPORTED = 900


def test_a_graph_runs_at_its_launches_only() -> None:
    on, x = stream(), number()
    add(on, x)  # compiled and loaded before the capture
    double(on, x)
    on.synchronize()
    with on:
        on.begin_capture()
        assert on.is_capturing()
        add(on, x, 3)
        double(on, x)
        graph = on.end_capture()
    assert not on.is_capturing()
    assert value(x) == 2
    graph.launch(on)
    graph.launch(on)
    assert value(x) == 26


def test_a_graph_keeps_forks_and_joins() -> None:
    first, second, x, y = stream(), stream(), number(), number()
    with first:
        first.begin_capture()
        add(first, x)
        second.wait_event(first.record())
        add(second, y, 5)
        joined = second.record()
        double(first, x)
        first.wait_event(joined)
        add(first, x)
        graph = first.end_capture()
    for _ in range(3):
        graph.launch(first)
    assert (value(x), value(y)) == (21, 15)
    text = graph.debug_dot_str()
    assert text.count("kernel") == 4
    assert {"n0 -> n1", "n0 -> n2", "n1 -> n3", "n2 -> n3"} <= {line.strip(" ;") for line in text.splitlines()}


def test_a_graph_keeps_its_place_in_the_stream() -> None:
    on, x = stream(), number()
    with on:
        on.begin_capture()
        double(on, x)
        graph = on.end_capture()
    add(on, x)
    graph.launch(on)
    add(on, x)
    graph.launch(on)
    assert value(x) == 6


def test_a_fork_that_does_not_join_is_refused() -> None:
    first, second, x = stream(), stream(), number()
    with first:
        first.begin_capture()
        add(first, x)
        second.wait_event(first.record())
        add(second, x)
        with pytest.raises(runtime.CUDARuntimeError, match="Unjoined"):
            first.end_capture()
    assert not second.is_capturing()
    assert value(x) == 0


@pytest.mark.parametrize("spoiler", ["stream", "query", "event"])
def test_asking_for_captured_work_spoils_the_capture(spoiler: str) -> None:
    on, x = stream(), number()
    with on:
        on.begin_capture()
        add(on, x)
        event = on.record()
        if spoiler == "query":
            assert runtime.streamQuery(on.ptr) == CAPTURE_UNSUPPORTED
        else:
            with pytest.raises(runtime.CUDARuntimeError, match="Capture"):
                {"stream": on, "event": event}[spoiler].synchronize()
        with pytest.raises(runtime.CUDARuntimeError, match="Invalidated"):
            on.end_capture()
    assert not on.is_capturing()
    assert value(x) == 0


def test_a_capture_refuses_what_waits_for_devices_unless_relaxed() -> None:
    on = stream()
    with on:
        on.begin_capture(runtime.streamCaptureModeGlobal)
        for unsafe in (lambda: runtime.malloc(64), runtime.deviceSynchronize):
            with pytest.raises(runtime.CUDARuntimeError, match="CaptureUnsupported"):
                unsafe()
        on.end_capture()
        on.begin_capture(runtime.streamCaptureModeRelaxed)
        runtime.free(runtime.malloc(64))
        on.end_capture()


def test_a_capture_does_not_wait_for_work_outside_of_it() -> None:
    on, other, x = stream(), stream(), number()
    outside = other.record()
    with on:
        on.begin_capture()
        add(on, x)
        with pytest.raises(runtime.CUDARuntimeError, match="Isolation"):
            on.wait_event(outside)
        with pytest.raises(runtime.CUDARuntimeError, match="Invalidated"):
            on.end_capture()


def test_the_null_stream_is_not_captured() -> None:
    with pytest.raises(runtime.CUDARuntimeError, match="CaptureUnsupported"):
        runtime.streamBeginCapture(0)
