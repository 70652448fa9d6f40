"""Problems for the tests of policies: a published one, random ones, and what makes a schedule valid."""

import itertools

import numpy as np
from hypothesis import strategies as st
from plait.scheduler.policies import Problem

# Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002, figure 2: costs of ten items on three processors, and what flows.
_COST = [
    [14, 16, 9],
    [13, 19, 18],
    [11, 13, 19],
    [13, 8, 17],
    [12, 13, 10],
    [13, 16, 9],
    [7, 15, 11],
    [5, 11, 14],
    [18, 12, 20],
    [21, 7, 16],
]
_FLOW = {
    (1, 2): 18,
    (1, 3): 12,
    (1, 4): 9,
    (1, 5): 11,
    (1, 6): 14,
    (2, 8): 19,
    (2, 9): 16,
    (3, 7): 23,
    (4, 8): 27,
    (4, 9): 23,
    (5, 9): 13,
    (6, 8): 15,
    (7, 10): 17,
    (8, 10): 11,
    (9, 10): 13,
}


def published() -> Problem:
    """The example of the HEFT paper."""
    edges = [(before - 1, after - 1) for before, after in _FLOW]
    return Problem.of(_COST, edges, list(_FLOW.values()), bandwidth=1.0)


@st.composite
def problems(draw, most_items=14, pins=True, priorities=True):
    """Small graphs on small machines, with everything that a problem can have."""
    items = draw(st.integers(1, most_items))
    kinds = draw(st.integers(1, 3))
    kind = [*range(kinds), *draw(st.lists(st.integers(0, kinds - 1), max_size=3))]
    seconds = st.integers(0, 8).map(float)
    cost = [draw(st.lists(seconds | st.just(np.inf), min_size=kinds, max_size=kinds)) for _ in range(items)]
    for row in cost:
        if not np.isfinite(row).any():
            row[draw(st.integers(0, kinds - 1))] = draw(seconds)
    order = draw(st.permutations(range(items)))  # the edges need not follow program order
    pairs = [(a, b) for a in range(items) for b in range(a + 1, items)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3 * items)) if pairs else []
    edges = [(order[a], order[b]) for a, b in chosen]
    nbytes = [float(draw(st.integers(0, 6))) for _ in edges]
    count = len(kind)
    pin = [-1] * items
    for item in range(items) if pins else ():
        able = [device for device in range(count) if np.isfinite(cost[item][kind[device]])]
        if draw(st.integers(0, 3)) == 0:
            pin[item] = draw(st.sampled_from(able))
    return Problem.of(
        cost,
        edges,
        nbytes,
        kind=kind,
        bandwidth=[[draw(st.sampled_from([0.5, 1.0, 2.0, np.inf])) for _ in kind] for _ in kind],
        latency=draw(st.sampled_from([0.0, 1.0])),
        pin=pin,
        priority=[draw(st.integers(-1, 1)) for _ in range(items)] if priorities else 0,
    )


def check_valid(problem, schedule):
    """AssertionError unless the schedule could happen: durations, arguments, one item at a time, pins."""
    device, start, finish = schedule.device.tolist(), schedule.start.tolist(), schedule.finish.tolist()
    assert sorted(schedule.order.tolist()) == list(range(problem.items))
    for item in range(problem.items):
        seconds = problem.cost[item, problem.kind[device[item]]]
        assert np.isfinite(seconds)
        assert finish[item] == start[item] + seconds
        assert start[item] >= 0
        assert problem.pin[item] in (-1, device[item])
    rank = schedule.rank
    edges = zip(problem.edges.source.tolist(), problem.edges.target.tolist(), problem.nbytes.tolist(), strict=True)
    for before, after, nbytes in edges:
        a, b = device[before], device[after]
        delay = problem.latency[a, b] + nbytes / problem.bandwidth[a, b]
        assert start[after] >= finish[before] + delay - 1e-9
        assert rank[before] < rank[after]
    for there in range(problem.devices):
        spans = sorted((start[item], finish[item]) for item in range(problem.items) if device[item] == there)
        busy = [span for span in spans if span[1] > span[0]]
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(busy))
