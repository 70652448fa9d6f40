"""Policies: pure functions that put a program's items in order of urgency."""

from __future__ import annotations

import difflib
from typing import Protocol

import numpy as np
import numpy.typing as npt
from plait.errors import PlanError
from plait.graph.analysis import upward_rank
from plait.graph.edges import Edges

FloatArray = npt.NDArray[np.float64]


class Policy(Protocol):
    """What a policy is asked: one number per item, larger is more urgent, given the edges and the costs in seconds."""

    def __call__(self, edges: Edges, cost: FloatArray) -> FloatArray: ...


def critical_path(edges: Edges, cost: FloatArray) -> FloatArray:
    """Upward rank: the longest path from the item to the end, itself included (Topcuoglu et al., HEFT, 2002)."""
    return np.asarray(upward_rank(edges, cost), dtype=np.float64)


def fifo(edges: Edges, cost: FloatArray) -> FloatArray:
    """Program order: what was recorded first goes first."""
    return -np.arange(edges.count, dtype=np.float64)


POLICIES: dict[str, Policy] = {"critical-path": critical_path, "fifo": fifo}


def find_policy(policy: str | Policy) -> Policy:
    """A policy by its name, or the one given; PlanError names the known ones."""
    if callable(policy):
        return policy
    if policy not in POLICIES:
        near = difflib.get_close_matches(str(policy), POLICIES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PlanError(f"unknown policy {policy!r} (known: {', '.join(POLICIES)}){hint}")
    return POLICIES[policy]
