"""Run a command on the rig: ``python tests/hiprig/run.py python -m pytest ...``."""

import os
import sys

import rig

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python tests/hiprig/run.py COMMAND...")
    os.execvpe(sys.argv[1], sys.argv[1:], rig.command_environment())
