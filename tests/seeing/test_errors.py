"""A failed run in a few lines: which item, where, on what, how, and what did not run."""

import logging
import traceback

import numpy as np
import plait
import pytest
from plait import Graph, RunFailed, WorkError, open_scheduler


def divide(a, b, scale):
    return a / b[:2] * scale


def failing():
    g = Graph("norm")
    x, w = g.input("x", (5,), "float64"), g.constant(np.ones(3, "float32"), name="w")
    y = g.options(name="divide").call(divide, x[1:4], plait.read(w), scale=2.5)
    for name in ("total", "mean", "largest", "smallest", "norm", "last"):
        y = g.options(name=name).call(np.abs, y)
    return g


def failure(graph, **inputs):
    with pytest.raises(RunFailed) as caught:
        plait.run(graph, inputs)
    return caught.value


def test_a_failed_run_prints_item_place_inputs_cause_and_what_was_stopped():
    lines = str(failure(failing(), x=np.ones(5))).splitlines()
    assert lines[0] == "run of graph 'norm' failed"
    assert lines[1].startswith(f"  item 'divide' failed, recorded at {__file__}:")
    assert lines[1].endswith(", on host, stream host/compute:0")
    assert lines[2] == "    inputs: x[1:4] float64 (3,), w float32 (3,), scale=2.5"
    assert lines[3].startswith("    ValueError: operands could not be broadcast together with shapes (3,) (2,)")
    assert lines[4].startswith(f"      at {__file__}:") and lines[4].endswith(" in divide: return a / b[:2] * scale")
    assert lines[5] == "  not run because of it: total, mean, largest, smallest, norm and 1 more"
    assert len(lines) == 6


def test_the_original_traceback_is_printed_with_it():
    text = "".join(traceback.format_exception(failure(failing(), x=np.ones(5))))
    assert "in divide" in text and "direct cause" in text and "inputs: x[1:4] float64 (3,)" in text


class Sly:
    """A value that would fail the report of a failure if its code were run."""

    @property
    def shape(self):
        raise AssertionError("nobody should ask")

    __repr__ = None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (3, "3"),
        ("word", "'word'"),
        (None, "None"),
        ("x" * 100, "builtins.str"),
        (Sly(), f"{Sly.__module__}.Sly"),
        ({"a": 1}, "builtins.dict"),
        (np.float32(2), "numpy.float32"),
    ],
)
def test_inputs_that_are_no_arrays_are_told_without_running_their_code(value, says):
    g = Graph()
    given = g.input("given")
    g.options(name="bad").call(lambda *_, key: 1 / 0, given, [given], key=given)
    (error,) = failure(g, given=value).exceptions
    assert error.inputs == (f"given {says}", f"given {says}", f"key=given {says}")


def test_several_failures_and_retries_are_told_each():
    g = Graph("many")
    for k in range(7):
        g.options(name=f"bad{k}", retries=1).call(int, "x")

    async def main():
        async with open_scheduler(devices="host", streams=1, on_error="isolate") as scheduler:
            return await scheduler.run(g)

    outputs = plait.front.trio.run(main)
    group = RunFailed("seven", outputs.failed)
    assert str(group).count("failed after 2 attempts") == 5 and "and 2 more items" in str(group)


def test_an_error_made_by_hand_prints_too():
    assert (
        str(RunFailed("stopped", [WorkError("no item had started", item="(none)")])) == "stopped\n  no item had started"
    )
    part = failure(failing(), x=np.ones(5)).subgroup(WorkError)
    assert "not run because of it" in str(part)


async def test_each_failure_is_logged_once_and_nothing_else_above_debug(caplog):
    caplog.set_level(logging.DEBUG, "plait")
    async with open_scheduler(devices="host", streams=1) as scheduler:
        with pytest.raises(RunFailed):
            await scheduler.run(failing(), x=np.ones(5))
        await scheduler.run(Graph("fine"))
        bad = Graph("bad")
        bad.options(name="bad").call(int, "x")
        await scheduler.start(bad, on_error="isolate")
    loud = [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert [record.levelname for record in loud] == ["ERROR", "ERROR"]
    assert "item 'divide' failed" in loud[0].getMessage() and "item 'bad' failed" in loud[1].getMessage()
    assert {record.name for record in caplog.records} == {"plait.scheduler"}
    quiet = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any(text.startswith("compiled graph 'fine': 0 items") for text in quiet)
    assert any(text.startswith("run of graph 'fine' ended after") for text in quiet)


def test_the_log_is_silent_by_default(capfd):
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("plait").handlers)
    failure(failing(), x=np.ones(5))
    assert capfd.readouterr() == ("", "")
