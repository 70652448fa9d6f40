"""Policies by name."""

from __future__ import annotations

import dataclasses
import difflib
import functools

from plait.errors import PlanError
from plait.scheduler.policies.best import best, keeping_order
from plait.scheduler.policies.online import (
    online,
    pull_or_steal,
    pull_own,
    push_where_first_done,
    push_where_made,
)
from plait.scheduler.policies.place import append, insert
from plait.scheduler.policies.policy import Policy
from plait.scheduler.policies.rank import recorded, upward

DEFAULT = "critical-path"

POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", recorded, append),
        Policy(DEFAULT, upward, best),
        Policy("heft", upward, insert),
        Policy(
            "locality",
            upward,
            functools.partial(online, push=push_where_first_done, pull=pull_own),
            push_where_first_done,
            pull_own,
        ),
        Policy(
            "eager",
            recorded,
            functools.partial(online, push=push_where_made, pull=pull_or_steal),
            push_where_made,
            pull_or_steal,
        ),
    )
}


def find(policy: str | Policy) -> Policy:
    """A policy by its name, or the one given.

    ``"fifo+heft"`` orders items as the first does and places them as the second. PlanError names the known ones.
    """
    if isinstance(policy, Policy):
        return policy
    order, plus, placement = policy.partition("+") if isinstance(policy, str) else ("", "", "")
    for name in (order, placement) if plus else (order,):
        if name not in POLICIES:
            near = difflib.get_close_matches(name, POLICIES, 1) if name else []
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PlanError(f"unknown policy {policy!r} (known: {', '.join(POLICIES)}, or ORDER+PLACEMENT){hint}")
    if not plus:
        return POLICIES[order]
    chosen = POLICIES[placement]
    place = functools.partial(keeping_order, chosen.place)
    return dataclasses.replace(chosen, name=policy, order=POLICIES[order].order, place=place)
