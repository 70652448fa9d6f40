"""Recording: what a call gives, what is found among its arguments, and every check that must fail early."""

import functools
import re

import networkx as nx
import numpy as np
import plait
import pytest
from plait import Graph, GraphError


def hazards(graph: Graph) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(source, target): data["hazards"] for source, target, data in graph.dag.edges(data=True)}


def named(graph: Graph, name: str, *args, **options):
    return graph.options(name=name, **options).call(lambda *values: None, *args)


def test_a_call_reads_buffers_and_makes_a_new_one():
    g = Graph()
    x = g.input("x", shape=(3,), dtype="float32")
    y = g.options(name="double").call(np.multiply, x, 2)
    g.options(name="sum").call(np.sum, y)
    assert hazards(g) == {("double", "sum"): ("read-after-write",)}
    assert y.item.function is np.multiply
    assert g.dag.nodes["double"]["item"].name == "double"


def test_buffers_are_found_in_nested_containers_and_keywords():
    g = Graph()
    a, b, c = (named(g, name) for name in "abc")
    g.options(name="use").call(lambda *args, **kwargs: None, [a, {"deep": (b,)}], key={"c": c})
    assert set(g.dag.predecessors("use")) == {"a", "b", "c"}


def test_disjoint_slices_do_not_conflict_and_overlapping_ones_do():
    g = Graph()
    acc = g.buffer("acc", (8, 8), fill=0)
    named(g, "rows", plait.update(acc[0:4]))
    named(g, "other rows", plait.update(acc[4:8]))
    named(g, "even", plait.update(acc[0:4:2, ::-1]))
    named(g, "odd", plait.update(acc[3::-2, :]))
    assert hazards(g).keys() == {("rows", "even"), ("rows", "odd")}


def test_every_hazard_has_its_word():
    g = Graph()
    acc = g.buffer("acc", (8,))
    named(g, "first", plait.write(acc))
    named(g, "read", acc)
    named(g, "second", plait.write(acc))
    assert hazards(g) == {("first", "read"): ("read-after-write",), ("read", "second"): ("write-after-read",)}
    g2 = Graph()
    acc2 = g2.buffer("acc", (8,))
    named(g2, "first", plait.write(acc2))
    named(g2, "second", plait.write(acc2))
    named(g2, "later", after=["first", "second"])
    assert hazards(g2) == {("first", "second"): ("write-after-write",), ("second", "later"): ("order",)}


def test_a_named_resource_orders_items_that_share_it():
    g = Graph()
    named(g, "a", plait.uses("disk"))
    named(g, "b", plait.uses("disk"))
    named(g, "c", plait.uses("net"))
    assert hazards(g).keys() == {("a", "b")}
    assert "disk" not in list(g.items[0].args)
    shared = Graph()
    for name in "ab":
        named(shared, name, plait.uses("disk", shared=True))
    named(shared, "c", plait.uses("disk"))
    assert hazards(shared).keys() == {("a", "c"), ("b", "c")}


def test_barrier_and_after_order_explicitly():
    g = Graph()
    a, _b = named(g, "a"), named(g, "b")
    g.barrier()
    named(g, "c")
    named(g, "d", after=[a])
    assert nx.has_path(g.dag, "a", "c") and nx.has_path(g.dag, "b", "c") and nx.has_path(g.dag, "b", "d")


def test_defaults_and_groups_apply_inside_their_block_only():
    g = Graph()
    with g.defaults(priority=3), g.group("encoder", limit=2, retries=1):
        inside = g.call(lambda: None)
    outside = g.call(lambda: None)
    assert (inside.item.options.priority, inside.item.options.retries) == (3, 1)
    assert inside.item.options.groups == ("encoder",)
    assert outside.item.options.groups == () and outside.item.options.priority == 0


def test_an_edge_says_how_many_bytes_flow():
    g = Graph()
    acc = g.buffer("acc", (8,), "float32", fill=0)
    named(g, "write", plait.write(acc))
    named(g, "half", acc[0:4])
    assert g.dag.edges["write", "half"]["nbytes"] == 16


def test_the_view_is_frozen():
    g = Graph()
    named(g, "a")
    with pytest.raises(nx.NetworkXError, match="rozen"):
        g.dag.add_edge("a", "b")


def test_work_records_on_buffers_and_computes_on_values():
    square = plait.work(np.square, priority=2)
    assert square(3) == 9
    g = Graph()
    x = g.input("x")
    y = square(x)
    assert y.item.options.priority == 2 and y.item.function is np.square

    @plait.work(name="mine")
    def mine(value, *, by):
        return value + by

    assert mine(2, by=1) == 3
    assert mine(x, by=1).item.name == "mine"


def test_work_keeps_its_options_however_it_is_recorded():
    @plait.work(priority=2, retries=1)
    async def twice(value):
        return 2 * value

    g = Graph()
    y = g.options(priority=5).call(twice, g.input("x"))
    assert (y.item.options.priority, y.item.options.retries) == (5, 1)
    g.output("y", y)
    assert plait.run(g, x=4) == {"y": 8}
    dag = nx.DiGraph()
    dag.add_node("four", work=lambda: 4)
    dag.add_node("eight", work=twice)
    dag.add_edge("four", "eight")
    assert plait.run(dag) == {"eight": 8}


def test_from_networkx_passes_results_in_edge_order():
    dag = nx.DiGraph()
    for node, value in (("two", 2), ("one", 1)):
        dag.add_node(node, work=lambda value=value: value, label="ignored", priority=1)
    dag.add_node("minus", work=lambda a, b: a - b)
    dag.add_edge("two", "minus")
    dag.add_edge("one", "minus")
    g = Graph.from_networkx(dag)
    assert plait.run(g) == {"minus": 1}
    assert set(g.dag.edges) == set(dag.edges)
    assert g.items[0].options.priority == 1


def function_that_reads(value):
    return value


class Callable:
    def method(self, value):
        return value + 1

    def __call__(self, value):
        return value + 2

    @staticmethod
    async def asynchronous(value):
        return value + 3


@pytest.mark.parametrize(
    ("work", "result"),
    [
        (functools.partial(np.add, 5), 6),
        (Callable().method, 2),
        (Callable(), 3),
        (Callable.asynchronous, 4),
        (functools.partial(Callable.asynchronous), 4),
        (np.negative, -1),
        (abs, 1),
        (int, 1),
        (lambda value: value, 1),
    ],
)
def test_any_callable_is_work(work, result):
    g = Graph()
    g.output("y", g.call(work, g.input("x")))
    assert plait.run(g, x=1) == {"y": result}


# ---- what must fail before anything runs ----------------------------------------------------------------------


def duplicate_input(g):
    g.input("x")
    g.input("x")


def duplicate_item(g):
    named(g, "a")
    named(g, "a")


def empty_name(g):
    g.buffer("  ", (1,))


def foreign_buffer(g):
    g.call(abs, Graph("other").input("x"))


def foreign_in_container(g):
    g.call(abs, [{"k": Graph("other").input("x")}])


def read_before_write(g):
    g.call(abs, g.buffer("acc", (3,)))


def update_before_write(g):
    g.call(abs, plait.update(g.buffer("acc", (3,))[0:1]))


def output_of_nothing(g):
    g.output("y", None)


def output_never_written(g):
    g.output("y", g.buffer("acc", (3,)))


def duplicate_output(g):
    x = g.input("x")
    g.output("y", x)
    g.output("y", x)


def unknown_option(g):
    g.options(prioritty=3)


def option_of_wrong_kind(g):
    g.options(retries=-1)


def name_in_defaults(g):
    with g.defaults(name="a"):
        pass


def not_callable(g):
    g.call(3)


def negative_cost(g):
    g.options(cost={"host": -1.0})


def nan_cost(g):
    g.options(cost=float("nan"))


def negative_timeout(g):
    g.options(timeout=0)


def bad_group_limit(g):
    with g.group("a", limit=0):
        pass


def after_nothing(g):
    named(g, "a", after=["b"])


def advanced_index(g):
    g.input("x", (3,))[[0, 1]]


def index_out_of_range(g):
    g.input("x", (3,))[3]


def uses_in_keyword(g):
    g.call(abs, disk=plait.uses("disk"))


def copy_of_wrong_shape(g):
    g.copy(g.buffer("a", (3,)), np.zeros(4))


def unpacked(g):
    _q, _r = g.call(np.linalg.qr, g.input("a"))


def branch(g):
    if g.call(abs, g.input("a")):
        pass


def bad_shape(g):
    g.input("x", (-1,))


def bad_dtype(g):
    g.input("x", (1,), "float33")


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (duplicate_input, "duplicate name 'x'"),
        (duplicate_item, "duplicate name 'a'"),
        (empty_name, "non-empty name"),
        (foreign_buffer, "belongs to graph 'other'"),
        (foreign_in_container, "belongs to graph 'other'"),
        (read_before_write, "reads buffer 'acc'.*before anything writes it"),
        (update_before_write, "updates buffer 'acc'"),
        (output_of_nothing, "must be a buffer"),
        (output_never_written, "nothing ever writes buffer 'acc'"),
        (duplicate_output, "output of that name already"),
        (unknown_option, "unknown option 'prioritty'.*did you mean 'priority'"),
        (option_of_wrong_kind, "'retries' must be"),
        (name_in_defaults, "unknown option 'name'"),
        (not_callable, "3 is not callable"),
        (negative_cost, "'cost' must be non-negative"),
        (nan_cost, "'cost' must be non-negative"),
        (negative_timeout, "'timeout' must be a positive number"),
        (bad_group_limit, "limit must be an integer of at least 1"),
        (after_nothing, "no item of this graph"),
        (advanced_index, "x.*basic"),
        (index_out_of_range, "x.*3"),
        (uses_in_keyword, "goes among the arguments"),
        (copy_of_wrong_shape, r"shape \(4,\) does not fit"),
        (unpacked, r"options\(outputs=n\)"),
        (branch, "inside a work item"),
        (bad_shape, "'x'.*non-negative"),
        (bad_dtype, "'x'.*float33"),
    ],
)
def test_a_mistake_is_a_graph_error_that_says_what_to_change(mistake, says):
    with pytest.raises(GraphError, match=f"(?s){says}"):
        mistake(Graph("mine"))


@pytest.mark.parametrize(
    "mistake",
    [duplicate_item, foreign_buffer, read_before_write, output_of_nothing, unknown_option, not_callable, after_nothing],
)
def test_the_error_names_the_line_that_recorded_it(mistake):
    with pytest.raises(GraphError) as caught:
        mistake(Graph("mine"))
    lines = [int(line) for line in re.findall(rf"{re.escape(__file__)}:(\d+)", str(caught.value))]
    first = mistake.__code__.co_firstlineno
    helper = named.__code__.co_firstlineno
    assert any(first < line < first + 5 or helper < line < helper + 3 for line in lines), str(caught.value)


def test_a_failed_call_leaves_no_trace_of_itself():
    g = Graph("mine")
    x = g.input("x", (3,))
    with pytest.raises(GraphError):
        g.options(name="a").call(abs, x[0:2], Graph("other").input("y"))
    g.options(name="a").call(abs, x)
    assert len(g.items) == 1 and len(g.dag) == 1


@pytest.mark.parametrize(
    ("nodes", "edges", "says"),
    [
        ("abc", [("a", "b"), ("b", "c"), ("c", "a")], "cycle: .*->"),
        ("ab", [("a", "b"), ("b", "b")], "self loop: node 'b'"),
        ("ab", [("a", "b")], None),
    ],
)
def test_from_networkx_refuses_cycles(nodes, edges, says):
    dag = nx.DiGraph()
    for node in nodes:
        dag.add_node(node, work=lambda *args: None)
    dag.add_edges_from(edges)
    if says is None:
        assert len(Graph.from_networkx(dag).dag) == len(nodes)
    else:
        with pytest.raises(GraphError, match=says):
            Graph.from_networkx(dag)


@pytest.mark.parametrize(
    ("dag", "says"),
    [
        (nx.Graph(), "DiGraph"),
        ({}, "DiGraph"),
        (nx.DiGraph([("a", "b")]), "carries no work"),
    ],
)
def test_from_networkx_refuses_what_is_no_graph_of_work(dag, says):
    with pytest.raises(GraphError, match=says):
        Graph.from_networkx(dag)


def test_from_networkx_refuses_names_that_read_the_same():
    dag = nx.DiGraph()
    dag.add_node(1, work=int)
    dag.add_node("1", work=int)
    with pytest.raises(GraphError, match="duplicate name '1'"):
        Graph.from_networkx(dag)


def test_an_automatic_name_that_clashes_is_found():
    g = Graph()
    named(g, "abs#1")
    g.call(abs, 1)
    with pytest.raises(GraphError, match="duplicate name 'abs#1'"):
        g.program()
