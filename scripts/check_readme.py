"""Run what the README and the pages show: every python block, the main job's command, the tests' command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: Path, kind: str) -> list[str]:
    """The code blocks of one kind in a page."""
    return [text for found, text in BLOCK.findall(path.read_text(encoding="utf-8")) if found == kind]


def run_in_copy(command: str, scratch: Path) -> Path:
    """Type a command into a copy of the checkout, as a newcomer would; gives the copy."""
    copy = scratch / "checkout"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, files.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    print(f"-- {command.strip()}", flush=True)
    clean = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
    subprocess.run(["bash", "-euc", command], check=True, cwd=copy, env=clean)
    return copy


def command_with(word: str) -> str:
    """The README's command that holds ``word``."""
    return next(text for text in blocks(ROOT / "README.md", "bash") if word in text)


def main(what: str) -> int:
    """``examples``: code blocks and the main job; ``tests``: the README's test command. Status 1 if anything fails."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if what == "tests":
            run_in_copy(command_with("pytest"), scratch)
            return 0
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
            for text in blocks(page, "python"):
                print(f"-- python block of {page.name}", flush=True)
                subprocess.run([sys.executable, "-c", text], check=True, cwd=scratch)
        copy = run_in_copy(command_with("plait run"), scratch)
        if not (copy / "run.json").is_file():
            raise SystemExit("the main job wrote no trace")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
