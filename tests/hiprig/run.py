"""Runs a command with the rig in place: ``python tests/hiprig/run.py python script.py``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hiprig.build import BuildError, build
from hiprig.rig import environment


def main(command: list[str]) -> None:
    """Replace this process by the command. Exits with a message if the rig cannot be built or no command is given."""
    if not command:
        sys.exit(f"usage: {sys.argv[0]} COMMAND [ARGUMENT ...]")
    try:
        os.environ.update(environment(build()))
    except BuildError as error:
        sys.exit(str(error))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
