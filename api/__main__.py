"""``python -m plait``: the command line."""

import sys

from plait.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
