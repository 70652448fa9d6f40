"""Mistakes that are easily made while recording: each error says what to write instead."""

import operator
from functools import partial, wraps

import numpy as np
import plait
import pytest
from plait import Graph, GraphError, PlaitError
from plait.cli.main import main
from plait.graph.options import NAMES

VALUES = {"name": "a", "outputs": 2, "device": "cuda:0", "after": [], "cost": {"host": 1.0}}


def plain(x):
    return x


@pytest.mark.parametrize("name", NAMES)
def test_an_option_among_the_arguments_of_a_function_that_takes_no_such(name):
    g = Graph()
    x = g.input("x")
    with pytest.raises(GraphError) as caught:
        g.call(plain, x, **{name: VALUES.get(name, 2)})
    assert f"takes no argument {name!r}" in str(caught.value)
    assert f"g.options({name}=" in str(caught.value) and "test_mistakes.py:" in str(caught.value)
    assert not g.items and not len(g.access_buffers)
    with pytest.raises(GraphError, match=r"g\.options\(priority=2\)\.call\(plain, "):
        g.options(device="host").call(plain, x, priority=2)
    with pytest.raises(GraphError, match="takes no argument 'priority'"):
        plait.work(plain)(x, priority=2)


def test_a_function_that_takes_it_gets_it():
    def takes(x, *, timeout, **more):
        return timeout, more["cost"]

    @wraps(plain)
    def wrapper(*args, **kwargs):
        return plain(*args), kwargs["device"]

    class Callable:
        def __call__(self, x, nbytes=0):
            return nbytes

    g = Graph()
    x = g.input("x")
    g.output("takes", g.call(takes, x, timeout=3, cost=4))
    g.output("wrapper", g.call(wrapper, x, device="d"))
    g.output("partial", g.call(partial(takes, cost=1), x, timeout=5))
    g.output("callable", g.call(Callable(), x, nbytes=6))
    assert plait.run(g, x=1) == {"takes": (3, 4), "wrapper": (1, "d"), "partial": (5, 1), "callable": 6}


BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift"]
COMPARED = ["lt", "le", "gt", "ge"]
UNARY = ["neg", "pos", "invert", "abs"]


@pytest.mark.parametrize("name", [*BINARY, *COMPARED])
@pytest.mark.parametrize(("other", "written"), [(1, "1"), (np.ones(3), "y")], ids=["number", "array"])
def test_an_operator_on_what_is_recorded_says_how_to_record_it(name, other, written):
    x = Graph().input("x", (3,))
    for handle in (x, x[0:2]):
        with pytest.raises(GraphError) as caught:
            getattr(operator, name)(handle, other)
        hint = str(caught.value).partition("record it as an item, ")[2]
        assert hint.startswith(f"g.call(operator.{name}, x, {written})")
        assert hasattr(np, hint.partition("g.call(np.")[2].partition(",")[0])


@pytest.mark.parametrize("name", BINARY)
def test_also_on_the_right_where_the_order_is_kept(name):
    x = Graph().input("x", (3,))
    with pytest.raises(GraphError, match=rf"g\.call\(operator\.{name}, 2, x\)"):
        getattr(operator, name)(2, x)
    with pytest.raises(GraphError, match=rf"g\.call\(operator\.{name}, y, x\)"):
        getattr(operator, name)(np.ones(3), x)


@pytest.mark.parametrize("name", UNARY)
def test_also_with_one_operand(name):
    x = Graph().input("x", (3,))
    with pytest.raises(GraphError, match=rf"g\.call\(operator\.{name}, x\)"):
        getattr(operator, name)(x)


def test_the_hint_works():
    g = Graph()
    x = g.input("x")
    g.output("y", g.call(operator.add, x, 1))
    assert plait.run(g, x=2) == {"y": 3}


def test_equality_of_handles_stays():
    g = Graph()
    x = g.input("x", (3,))
    assert x == g.buffer_at(0) and x != 1 and x in [x]


def test_an_output_that_was_not_named_says_how_to_name_it():
    g = Graph()
    y = g.call(plain, g.input("x"))
    outputs = plait.run(g, x=1)
    assert outputs == {} and outputs.get("y") is None
    with pytest.raises(KeyError, match=r"its outputs: none\): name one with g\.output\('y', value\)"):
        outputs["y"]
    g.output("z", y)
    with pytest.raises(KeyError, match="its outputs: z"):
        plait.run(g, x=1)["y"]


async def test_as_does_waiting_for_one():
    g = Graph()
    g.call(plain, g.input("x"))
    async with plait.open_scheduler(devices="host") as scheduler:
        with pytest.raises(PlaitError, match=r"g\.output\('y', value\)"):
            await scheduler.start(g, x=1).output("y")


def test_a_missing_output_of_a_run_with_failures_says_that():
    g = Graph()
    g.output("y", g.call(plain, g.call(int, "no number")))
    outputs = plait.run(g, on_error="isolate")
    with pytest.raises(KeyError, match="was not computed"):
        outputs["y"]


def test_a_graph_without_outputs_is_pointed_out(tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text(
        "import plait\ng = plait.Graph()\ny = g.call(abs, -1)\nh = plait.Graph()\nh.output('y', h.call(abs, -1))"
    )
    assert main(["run", f"{path}:g"]) == 0
    assert "no outputs" in capsys.readouterr().out
    assert main(["show", f"{path}:g"]) == 0
    assert "no outputs" in capsys.readouterr().out
    assert main(["run", f"{path}:h"]) == 0
    assert "no outputs" not in capsys.readouterr().out
