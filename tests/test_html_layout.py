"""Laws of the layered layout and of folding, on random graphs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plait.graph.drawing.fold import MOST_BOXES, contract, fold, overview
from plait.graph.drawing.layout import curve, lay_out
from plait.graph.drawing.rows import assign_rows
from plait.graph.drawing.settle import settle
from plait.graph.edges import Edges, find_cycle

HEIGHT = 30.0


@st.composite
def dags(draw, most=40):
    count = draw(st.integers(1, most))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=3 * most))
    name = draw(st.permutations(range(count)))  # edges need not follow the numbers
    forward = [(name[min(a, b)], name[max(a, b)]) for a, b in pairs if a != b]
    return Edges.of(count, [a for a, _ in forward], [b for _, b in forward])


def acyclic(edges):
    return find_cycle(edges.count, edges.source, edges.target) is None


@given(dags(), st.data())
def test_no_two_boxes_overlap_and_every_edge_goes_down(edges, data):
    widths = data.draw(st.lists(st.floats(20, 300), min_size=edges.count, max_size=edges.count))
    layout = lay_out(edges, widths, HEIGHT)
    boxes = list(zip(layout.x, layout.y, widths, strict=True))
    for (x, y, width), (other_x, other_y, other) in itertools.combinations(boxes, 2):
        assert x + width <= other_x or other_x + other <= x or y + HEIGHT <= other_y or other_y + HEIGHT <= y
    for x, y, width in boxes:
        assert x >= -1e-6
        assert x + width <= layout.width + 1e-6
        assert 0 <= y <= layout.height - HEIGHT + 1e-6
    for source, target, route in zip(edges.source, edges.target, layout.routes, strict=True):
        heights = [y for _, y in route]
        assert heights == sorted(heights)
        assert heights[0] == layout.y[source] + HEIGHT
        assert heights[-1] == layout.y[target]
        assert layout.y[source] + HEIGHT < layout.y[target]
        for box, end in ((source, route[0]), (target, route[-1])):
            assert layout.x[box] <= end[0] <= layout.x[box] + widths[box]


@given(dags(), st.data())
def test_edges_pass_no_box_in_the_rows_between(edges, data):
    widths = data.draw(st.lists(st.floats(20, 300), min_size=edges.count, max_size=edges.count))
    layout = lay_out(edges, widths, HEIGHT)
    for route in layout.routes:
        for (x, top), (_, low) in _pairs(route):
            for box_x, box_y, width in zip(layout.x, layout.y, widths, strict=True):
                if top <= box_y and box_y + HEIGHT <= low:
                    assert x <= box_x or box_x + width <= x


def _pairs(route):
    inner = route[1:-1]
    return zip(inner[::2], inner[1::2], strict=True)


@given(dags())
def test_rows_are_in_order_and_none_is_left_empty(edges):
    row = assign_rows(edges, [100.0] * edges.count, HEIGHT, 10, 30)
    assert all(row[a] < row[b] for a, b in zip(edges.source, edges.target, strict=True))
    assert set(row) == set(range(max(row) + 1))


def test_a_wide_level_goes_over_several_rows():
    row = assign_rows(Edges.of(200, [], []), [100.0] * 200, HEIGHT, 10, 30)
    assert max(np.bincount(row)) <= 20
    assert max(row) >= 9


@given(st.data())
def test_settled_places_are_apart_and_inside_and_best(data):
    count = data.draw(st.integers(1, 12))
    numbers = st.floats(-500, 500)
    wanted = data.draw(st.lists(numbers, min_size=count, max_size=count))
    apart = data.draw(st.lists(st.floats(1, 50), min_size=count - 1, max_size=count - 1))
    weights = data.draw(st.lists(st.floats(0.5, 4), min_size=count, max_size=count))
    half = sum(apart) / 2 + data.draw(st.floats(0, 600))
    found = settle(wanted, weights, apart, half)
    assert all(b - a >= gap - 1e-6 for (a, b), gap in zip(itertools.pairwise(found), apart, strict=True))
    assert -half - 1e-6 <= found[0]
    assert found[-1] <= half + 1e-6

    def cost(places):
        return sum(w * (x - y) ** 2 for w, x, y in zip(weights, places, wanted, strict=True))

    even = [-sum(apart) / 2 + at for at in itertools.accumulate(apart, initial=0.0)]
    for share in (0.01, 0.5):  # the problem is convex, so a better one would show on the way to any other
        other = [(1 - share) * a + share * b for a, b in zip(found, even, strict=True)]
        assert cost(found) <= cost(other) + 1e-6 * (1 + cost(other))


@given(dags(), st.data())
def test_folded_boxes_are_a_dag_and_hold_every_item_once(edges, data):
    keys = data.draw(st.lists(st.integers(0, 4), min_size=edges.count, max_size=edges.count))
    box = fold(edges, keys)
    assert len(box) == edges.count
    assert set(box.tolist()) == set(range(int(box.max()) + 1))
    assert all(len({keys[item] for item in np.flatnonzero(box == each)}) == 1 for each in set(box.tolist()))
    assert acyclic(contract(edges, box))


@given(dags(), st.data())
def test_an_overview_is_a_dag_that_holds_every_item_once(edges, data):
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=edges.count, max_size=edges.count))
    box = overview(edges, names)
    assert len(box) == edges.count
    assert set(box.tolist()) == set(range(int(box.max()) + 1))
    assert acyclic(contract(edges, box))


def test_a_group_that_takes_turns_with_another_is_a_box_for_each_turn():
    steps = 5
    chain = Edges.of(2 * steps, range(2 * steps - 1), range(1, 2 * steps))
    assert fold(chain, ["forward", "backward"] * steps).tolist() == list(range(2 * steps))
    apart = Edges.of(4, [0, 1], [2, 3])
    assert fold(apart, ["a", "a", "b", "b"]).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("shape", ["chain", "wide", "layers"])
def test_an_overview_of_ten_thousand_items_has_few_boxes(shape):
    count = 10_000
    if shape == "chain":
        edges = Edges.of(count, range(count - 1), range(1, count))
    elif shape == "wide":
        edges = Edges.of(count, [0] * (count - 1), range(1, count))
    else:
        edges = Edges.of(count, range(count - 100), range(100, count))
    box = overview(edges, [f"kind {index % 300}" for index in range(count)])
    assert int(box.max()) < MOST_BOXES


def test_a_path_is_straight_in_rows_and_curved_between():
    assert (
        curve([(0, 0), (10, 20), (10, 40), (5, 60)])
        == "M0.0 0.0C0.0 10.0 10.0 10.0 10.0 20.0L10.0 40.0C10.0 50.0 5.0 50.0 5.0 60.0"
    )
