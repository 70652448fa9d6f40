"""The pytest plugin: ``pytest --plait-platform=NAME`` runs the conformance suite on a platform.

It is loaded into every pytest of an environment that has plait, so it imports nothing until it is asked.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

KIT = "plait.testing.conformance_kit"
SUITE = tuple(f"conformance{part}.py" for part in ("", "_failure", "_events", "_waiting", "_memory"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("plait").addoption(
        "--plait-platform",
        metavar="NAME",
        help="run plait's conformance suite on this platform: a registered name, or module:attribute of a "
        "Platform or of what makes one; alone unless paths are given too",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--plait-platform") is None:
        return
    pytest.register_assert_rewrite(KIT)
    kit = importlib.import_module(KIT)
    kit.find_platform(config.getoption("--plait-platform"))  # a name that is wrong should fail before collecting
    config.pluginmanager.register(kit, KIT)
    here = Path(__file__).parent
    suite = [str(here / "testing" / name) for name in SUITE]
    alone = config.args_source is not pytest.Config.ArgsSource.ARGS
    config.args[:] = suite if alone else [*config.args, *suite]
