"""The script of a page, in a headless browser: buttons, hover, zoom and folding, and nothing on the console."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import plait
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from browser import find_browser, open_page

PROBE = """<script>
const told = {}, all = (root, selector) => [...root.querySelectorAll(selector)];
const press = (part, text) => all(part, ".plait-tools button").find(button => button.textContent === text).click();
const [graph, run] = all(document, ".plait-view");
const picture = () => graph.querySelector(".plait-scroll > svg");
told.buttons = all(graph, ".plait-tools button").map(button => button.textContent);
told.boxes = all(picture(), ".plait-box").length;
press(graph, "fold groups");
told.folded = all(picture(), ".plait-box").length;
press(graph, "every item");
told.unfolded = all(picture(), ".plait-box").length;
const width = picture().getBoundingClientRect().width;
press(graph, "+");
told.larger = picture().getBoundingClientRect().width / width;
const box = all(picture(), ".plait-box").find(each => each.getAttribute("aria-label").startsWith("double"));
box.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
told.lit = all(picture(), ".plait-box.plait-on").map(each => each.getAttribute("aria-label").split("\\n")[0]);
box.dispatchEvent(new MouseEvent("mousemove", { bubbles: true, clientX: 5, clientY: 5 }));
told.tip = graph.querySelector(".plait-tip").textContent;
told.tipShown = !graph.querySelector(".plait-tip").hidden;
picture().dispatchEvent(new MouseEvent("mouseleave"));
told.unlit = all(picture(), ".plait-on").length;
all(picture(), ".plait-key")[0].dispatchEvent(new MouseEvent("click", { bubbles: true }));
told.chosen = all(picture(), ".plait-box.plait-on").length;
const lanes = () => run.querySelector(".plait-lanes").getAttribute("viewBox").split(" ").map(Number);
const whole = lanes()[2], part = run.querySelector(".plait-part");
press(part, "+");
told.shown = lanes()[2] / whole;
told.ticks = all(run, ".plait-ticks text").length;
press(part, "all");
told.again = lanes()[2] / whole;
const line = document.createElement("pre");
line.id = "told";
line.textContent = JSON.stringify(told);
document.body.append(line);
</script>"""


def test_pages_react_and_leave_the_console_empty(tmp_path):
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium or Chrome on this machine")
    g = plait.Graph("</script>")
    x = g.input("x")
    with g.group("first"):
        double = g.options(name="double").call(np.multiply, x, 2)
        total = g.options(name="total").call(np.sum, double)
    g.output("y", g.options(name="last").call(np.sqrt, total))
    ended = []
    plait.run(g, x=np.ones(4), watch=ended.append)
    page = tmp_path / "page.html"
    parts = f"{g.show().html}{ended[0].show().html}{PROBE}"
    page.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body>{parts}</body>', encoding="utf-8")
    dom, console = open_page(browser, page)
    assert console == []
    told = json.loads(re.search(r'<pre id="told">(.*?)</pre>', dom)[1].replace("&lt;", "<").replace("&gt;", ">"))
    assert told["buttons"] == ["fold groups", "−", "+", "fit", "1:1"]  # noqa: RUF001
    assert (told["boxes"], told["folded"], told["unfolded"]) == (5, 2, 5)
    assert told["larger"] == pytest.approx(1.3)
    assert sorted(told["lit"]) == ["double", "input x", "total"]
    assert told["tip"].startswith("double\ncall of multiply, recorded at ")
    assert told["tipShown"]
    assert told["unlit"] == 0
    assert told["chosen"] == 2
    assert told["shown"] == pytest.approx(1 / 1.6)
    assert told["ticks"] >= 3
    assert told["again"] == 1
