"""Make ``typeview/plait``: real folders by links, for tools that cannot follow ``package-dir``."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make(root: Path = ROOT) -> Path:
    """Link the four package folders under ``root/typeview`` and return that folder."""
    view = root / "typeview"
    package = view / "plait"
    package.mkdir(parents=True, exist_ok=True)
    wanted = {entry.name: entry for entry in (root / "api").iterdir() if entry.name != "__pycache__"}
    wanted |= {name: root / name for name in ("graph", "devices", "scheduler")}
    for link in package.iterdir():
        if link.name not in wanted:
            link.unlink()
    for name, target in wanted.items():
        link = package / name
        if not link.is_symlink():
            link.symlink_to(target)
    return view


if __name__ == "__main__":
    print(make())
