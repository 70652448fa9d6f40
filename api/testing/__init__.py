"""Tools for tests: conformance, the serial oracle, the plan checker, random programs. Start at ``oracle.py``."""

from plait.testing.checker import check_plan
from plait.testing.explore import ExplorationFailed, explore
from plait.testing.oracle import run_serial
from plait.testing.programs import RandomProgram, layered, random_program
from plait.testing.soak import soak

__all__ = [
    "ExplorationFailed",
    "RandomProgram",
    "check_plan",
    "explore",
    "layered",
    "random_program",
    "run_serial",
    "soak",
]
