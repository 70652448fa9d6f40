"""Pictures of graphs and plans: complete as SVG, nothing from a network, whatever a user calls things."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import plait
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait.graph.drawing.svg import escape, shortened, text_width
from plait.scheduler import compile_plan
from plait.testing.programs import layered, random_program

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    return ET.fromstring(svg)


def boxes(svg):
    """Per box its texts, by the first line of its tooltip."""
    found = {}
    for group in parsed(svg).iter(f"{SVG}g"):
        if group.get("class") == "plait-box":
            title = group.find(f"{SVG}title").text
            found[title.split("\n")[0]] = [text.text for text in group.iter(f"{SVG}text")]
    return found


class Elements(HTMLParser):
    """Checks that elements close as they open, and keeps their names and attributes."""

    def __init__(self, html):
        super().__init__()
        self.open, self.found = [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def program():
    g = plait.Graph("demo")
    x = g.input("x", shape=(4,), dtype="float64")
    with g.group("prepare"):
        y = g.call(np.multiply, x, 2.0)
        z = g.options(name="centre", priority=3, timeout=2.0).call(np.subtract, y, 1.0)
    store = g.buffer("store", shape=(4,), fill=0)
    g.options(name="stage").copy(store, z)
    g.barrier()
    with g.group("finish", limit=1):
        g.output("total", g.call(np.sum, store))
    return g


def test_a_graph_shows_every_item_its_inputs_and_outputs():
    view = program().show()
    found = boxes(view.svg)
    assert set(found) == {
        "multiply#0", "centre", "stage", "barrier#3", "sum#4", "input x (4,) float64", "output total: sum#4"
    }  # fmt: skip
    assert found["centre"] == ["centre", "subtract"]
    tooltip = next(each.text for each in parsed(view.svg).iter(f"{SVG}title") if each.text.startswith("centre\n"))
    for part in ("call of subtract", f"recorded at {__file__}", "group: prepare", "priority: 3", "timeout: 2.0 s"):
        assert part in tooltip


def test_arrows_say_why_and_are_dotted_where_no_data_flows():
    arrows = {
        path.find(f"{SVG}title").text: path.get("stroke-dasharray")
        for path in parsed(program().show().svg).iter(f"{SVG}path")
        if path.get("class") == "plait-edge"
    }
    assert arrows["multiply#0 → centre: read-after-write"] is None
    assert arrows["stage → barrier#3: order"]
    assert arrows["x → multiply#0: read-after-write"] is None


def test_a_page_is_self_contained_and_its_elements_close():
    for view in (program().show(), layered(20, 20).show()):
        found = Elements(view.html).found
        assert [tag for tag, _ in found].count("script") == 1
        for _, attributes in found:
            assert not {"src", "href"} & set(attributes)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", view.html)


def test_the_svg_stands_alone_with_its_own_colours():
    svg = program().show().svg
    root = parsed(svg)
    assert root.tag == f"{SVG}svg"
    assert float(root.get("width")) > 0
    assert "prefers-color-scheme: dark" in svg
    for shape in root.iter(f"{SVG}rect"):
        assert shape.get("fill")  # so that it is seen also where the style sheet is stripped


def test_a_graph_shows_itself_in_a_notebook():
    g = program()
    assert g._repr_html_() == g.show().html
    assert g._repr_svg_() == g.show().svg
    plan = compile_plan(g.program(), (plait.device("host"),), (2, 2), "critical-path")
    assert "plan of demo" in plan._repr_html_()
    assert boxes(plan._repr_svg_()).keys() == boxes(g._repr_svg_()).keys()


NAMES = st.text(st.characters(), min_size=1, max_size=30).filter(str.strip)
NASTY = [
    "running",
    "skipped",
    "</svg><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a&b<c>'d'",
    "\x00\x1b[31m\ufffe",
    "]]>--",
]


@settings(max_examples=40, deadline=None)
@given(st.lists(NAMES | st.sampled_from(NASTY), min_size=5, max_size=5, unique=True))
def test_whatever_the_user_names_things_stays_text(names):
    graph_name, item, group, value, result = names
    g = plait.Graph(graph_name)
    x = g.input(value)
    with g.group(group):
        g.output(result, g.options(name=item).call(np.abs, x))
    view = g.show(color="group")
    texts = [each.text for each in parsed(view.svg).iter() if each.text]  # parses, whatever the names hold
    assert shortened(group, 28).translate(_GONE) in "".join(texts).translate(_GONE)
    plain = plait.Graph("plain")
    with plain.group("group"):
        plain.output("y", plain.options(name="item").call(np.abs, plain.input("x")))
    expected = [tag for tag, _ in Elements(plain.show(color="group").html).found]
    assert [tag for tag, _ in Elements(view.html).found] == expected


_GONE = dict.fromkeys([*range(32), 65533, 65534, 65535, *range(55296, 57344), *range(127, 160)])


@given(st.text(st.characters()))
def test_escaped_text_is_read_back_by_a_parser(text):
    read = parsed(f"<a b='{escape(text)}'>{escape(text)}</a>")
    kept = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text).replace("\r\n", "\n")
    assert (read.text or "") == kept.replace("\r", "\n")


@given(st.text(), st.integers(3, 30))
def test_a_shortened_name_fits(text, most):
    assert len(shortened(text, most)) <= most
    assert text_width("ab", 10) < text_width("日本", 10)


def test_groups_fold_by_name_or_all_and_a_page_can_switch():
    g = program()
    assert {"prepare: 2 items", "stage", "barrier#3", "sum#4"} == set(boxes(g.show(fold=True).svg))
    assert "centre" in boxes(g.show(fold=["finish"]).svg)
    assert "centre" in boxes(g.show(fold=False).svg)
    page = Elements(g.show().html).found
    assert ("template", {"data-word": "fold groups"}) in page
    assert "template" not in [tag for tag, _ in Elements(g.show(fold=True).html).found]
    with pytest.raises(plait.GraphError, match=r"no such group.*'prepare', 'finish'"):
        g.show(fold=["encoder"])


def test_a_large_graph_shows_an_overview_that_counts_every_item():
    svg = layered(100, 100).show().svg
    found = boxes(svg)
    notes = [texts[1] for group in parsed(svg).iter(f"{SVG}g") if group.get("class") == "plait-box"
             for texts in [[each.text for each in group.iter(f"{SVG}text")]]]  # fmt: skip
    assert sum(int(note.removeprefix("\u00d7 ")) for note in notes) == 10_000
    assert found
    assert "10000 items" in svg
    with pytest.raises(plait.GraphError, match="too many to lay out"):
        layered(100, 100).show(fold=False)


def test_three_hundred_items_are_all_there():
    g = layered(30, 10)
    found = boxes(g.show().svg)
    assert found.keys() == {item.name for item in g.items}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([None, True, False]))
def test_every_item_of_a_random_program_is_drawn_or_counted(seed, folded):
    g = random_program(seed).graph
    counted = 0
    for name, texts in boxes(g.show(fold=folded).svg).items():
        if name.startswith(("input ", "output ")):
            continue
        many = re.fullmatch("\u00d7 ([0-9]+)", texts[-1])
        counted += int(many[1]) if many else 1
    assert counted == len(g.items)


def test_color_says_by_what_and_refuses_what_there_is_not():
    g = plait.Graph("places")
    for place in ("host", None, "host"):
        g.options(device=place).call(int)
    texts = [each.text for each in parsed(g.show(color="device").svg).iter(f"{SVG}text")]
    assert {"device:", "host \u00d72", "none \u00d71"} <= set(texts)
    with pytest.raises(plait.GraphError, match="show a plan or a run"):
        g.show(color="state")
    with pytest.raises(plait.GraphError, match="is none of 'device'"):
        g.show(color="colour")
    plan = compile_plan(g.program(), (plait.device("host"),), (2, 2), "critical-path")
    assert "any of the host" in plan.show(color="stream").svg
    with pytest.raises(plait.GraphError, match="show a run"):
        plan.show(color="state")


def test_a_view_is_saved_as_a_page_or_a_picture(tmp_path):
    view = program().show()
    view.save(tmp_path / "graph.svg")
    assert parsed((tmp_path / "graph.svg").read_text(encoding="utf-8")).tag == f"{SVG}svg"
    view.save(tmp_path / "graph.html")
    page = (tmp_path / "graph.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert Elements(page.removeprefix("<!DOCTYPE html>")).found[0][0] == "html"
    for name in ("graph.png", "graph"):
        with pytest.raises(plait.GraphError, match=r"\.svg or \.html"):
            view.save(tmp_path / name)


def test_an_empty_graph_has_a_picture_too():
    assert "0 items" in plait.Graph("empty").show().svg
