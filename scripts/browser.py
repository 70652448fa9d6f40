"""Open a page in a headless browser, if this machine has one: what the DOM is then, and what the console says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CONSOLE = re.compile(r":CONSOLE[:(].*?\] (.*)")


def find_browser() -> str | None:
    """The path of a Chromium or Chrome, or None."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def open_page(browser: str, page: Path, width: int = 1200) -> tuple[str, list[str]]:
    """``(dom, console)``: the page's HTML after its scripts have run, and what was written to the console."""
    command = [
        browser,
        "--headless",
        "--no-sandbox",  # in a container there is no other way, and the pages are our own
        "--disable-gpu",
        f"--window-size={width},900",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        "--dump-dom",
        page.resolve().as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, _CONSOLE.findall(done.stderr)
