"""Run every notebook from top to bottom and look at its page; none may hold stored outputs.

The page is opened in a headless Chromium, where every picture must be laid out, react to its buttons, and leave the
console empty. Without a browser the pictures are looked at by a parser alone, and that is said.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import nbformat
from browser import find_browser, open_page
from nbclient import NotebookClient
from nbconvert import HTMLExporter

ROOT = Path(__file__).resolve().parent.parent

# Press every button, then write what is there into the page.
PROBE = """<script>
const views = [...document.querySelectorAll(".plait-view:not(.plait-live)")];
for (const button of document.querySelectorAll(".plait-tools button")) button.click();
const all = selector => [...document.querySelectorAll(selector)];
const seen = selector => all(selector).filter(each => each.getBoundingClientRect().width > 0).length;
const line = document.createElement("pre");
line.id = "probe";
line.textContent = JSON.stringify({
  views: views.length, open: views.filter(view => view.dataset.ready).length, boxes: seen(".plait-box"),
  bars: seen(".plait-bar"), buttons: seen(".plait-tools button"),
  empty: views.filter(view => !view.querySelector(".plait-box, .plait-bar")).length,
});
document.body.append(line);
</script>"""


class Pictures(HTMLParser):
    """How many views a page has, and the boxes and bars in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.views = self.boxes = self.bars = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Count by class."""
        classes = (dict(attributes).get("class") or "").split()
        self.views += "plait-view" in classes
        self.boxes += "plait-box" in classes
        self.bars += "plait-bar" in classes


def execute(path: Path) -> nbformat.NotebookNode:
    """Run a notebook; SystemExit if it holds outputs."""
    notebook = nbformat.read(path, as_version=4)
    if any(cell.get("outputs") for cell in notebook.cells):
        raise SystemExit(f"{path.name} holds stored outputs: clear them")
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    return notebook


def exported(notebook: nbformat.NotebookNode) -> str:
    """The notebook as a page that asks for nothing from the network."""
    return str(HTMLExporter(template_name="lab", mathjax_url="", require_js_url="").from_notebook_node(notebook)[0])


def look(name: str, page: str, browser: str | None, scratch: Path) -> str:
    """Look at a page; SystemExit with the reason if it does not show what it should."""
    pictures = Pictures(page)
    if not pictures.views or not pictures.boxes or not pictures.bars:
        raise SystemExit(f"{name}: {pictures.views} views, {pictures.boxes} boxes, {pictures.bars} bars in its page")
    if browser is None:
        return f"{pictures.views} views, {pictures.boxes} boxes, {pictures.bars} bars by a parser: no browser here"
    file = scratch / f"{name}.html"
    file.write_text(page.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    dom, console = open_page(browser, file)
    if console:
        raise SystemExit(f"{name}: the browser's console says {console}")
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom)
    if found is None:
        raise SystemExit(f"{name}: its page did not run to the end in the browser")
    probe = json.loads(found[1])
    if probe["open"] != probe["views"] or probe["empty"] or not probe["boxes"] or not probe["bars"]:
        raise SystemExit(f"{name}: in the browser {probe}")
    return f"in the browser {probe}"


def main() -> int:
    """Exit status 1 if a cell fails, an output is stored, or a page does not show its pictures."""
    browser = find_browser()
    print(f"browser: {browser or 'none, so pages are only parsed'}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            print(f"-- {path.name}: ", end="", flush=True)
            print(look(path.stem, exported(execute(path)), browser, Path(scratch)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
