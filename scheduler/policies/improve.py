"""What makes a schedule shorter: it is run backwards, which tells how late each item may end, and made again from that.

``again`` chooses devices anew: those that have nothing to do may take what they end by the latest moment. ``shifted``
keeps them and changes the order (forward-backward improvement: Li, Willis, EJOR 1992).
"""

from __future__ import annotations

import numpy as np
from plait.graph.edges import Edges
from plait.scheduler.policies.balance import settled_order
from plait.scheduler.policies.kinds import within_kinds
from plait.scheduler.policies.problem import Problem, Schedule
from plait.scheduler.policies.rank import inherited_priority
from plait.scheduler.policies.simulate import simulate


def backwards(problem: Problem) -> Problem:
    """The problem with its edges turned round."""
    edges = problem.edges
    by = np.lexsort((edges.target, edges.source))
    turned = Edges(edges.count, edges.target[by], edges.source[by], edges.kinds[by])
    return Problem(
        problem.cost,
        turned,
        problem.nbytes[by],
        problem.kind,
        problem.bandwidth.T.copy(),
        problem.latency.T.copy(),
        problem.pin,
        problem.priority,
    )


def again(problem: Problem, turned: Problem, schedule: Schedule, target: float) -> Schedule:
    """Another schedule, not always a shorter one: items keep the kinds of devices that they have in ``schedule``, but
    a device that has nothing to do takes what it ends in time for ``target``, a makespan in seconds, if all that comes
    after is as late as can be. ``turned`` is the problem ``backwards``.
    """
    latest = target - _late(turned, schedule).start
    made = within_kinds(problem, schedule.device, settled_order(problem, schedule.device), latest)
    return simulate(problem, made.device, made.order)


def shifted(problem: Problem, turned: Problem, schedule: Schedule) -> Schedule:
    """The schedule run from its end backwards, then forwards in the order that gives, while that makes it shorter."""
    priority = inherited_priority(problem)
    while True:
        late = _late(turned, schedule)
        order = np.lexsort((schedule.rank, late.makespan - late.finish, -priority)).astype(np.int64)
        found = simulate(problem, schedule.device, order)
        if not found.makespan < schedule.makespan * (1 - 1e-9):
            return schedule
        schedule = found


def _late(turned: Problem, schedule: Schedule) -> Schedule:
    return simulate(turned, schedule.device, np.lexsort((-schedule.rank, -schedule.finish)).astype(np.int64))
