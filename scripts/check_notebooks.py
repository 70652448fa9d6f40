"""Run every notebook from top to bottom; none may hold stored outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Exit status 1 if a cell fails or an output is stored."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        print(f"-- {path.name}", flush=True)
        notebook = nbformat.read(path, as_version=4)
        if any(cell.get("outputs") for cell in notebook.cells):
            raise SystemExit(f"{path.name} holds stored outputs: clear them")
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    return 0


if __name__ == "__main__":
    sys.exit(main())
