"""Run what the README and the pages show: every python block, and the README's command for the main job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: Path, kind: str) -> list[str]:
    """The code blocks of one kind in a page."""
    return [text for found, text in BLOCK.findall(path.read_text(encoding="utf-8")) if found == kind]


def main() -> int:
    """Exit status 1 if anything fails."""
    with tempfile.TemporaryDirectory() as scratch:
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
            for text in blocks(page, "python"):
                print(f"-- python block of {page.name}", flush=True)
                subprocess.run([sys.executable, "-c", text], check=True, cwd=scratch)
        job = next(text for text in blocks(ROOT / "README.md", "bash") if "plait run" in text)
        print(f"-- {job.strip()}", flush=True)
        copy = Path(scratch) / "checkout"
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in filter(None, files.decode().split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
        clean = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
        subprocess.run(["bash", "-euc", job], check=True, cwd=copy, env=clean)
        if not (copy / "run.json").is_file():
            raise SystemExit("the main job wrote no trace")
    return 0


if __name__ == "__main__":
    sys.exit(main())
