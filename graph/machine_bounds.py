"""Bounds on a machine of several kinds of devices: no schedule is shorter than any of these.

``cost[i, k]`` are the seconds of item i on a device of kind k, inf where it cannot run there (float64, shape (items,
kinds)); ``count[k]`` is the number of devices of kind k (shape (kinds,)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from plait.errors import PlaitError
from plait.graph.analysis import critical_path, downward_rank, upward_rank
from plait.graph.edges import Edges, in_topological_order

Floats = NDArray[np.float64]

_EACH = 6000  # up to so many items each has variables of its own in the linear program; then those alike share
_STEPS, _SHRINK = 300, 0.97  # of the search for prices, and what each step is to the one before
_FURTHEST = 60.0  # kinds whose speeds differ by more than e**60 are not told apart
_WINDOWS = 12  # thresholds of heads, and of tails, whose pairs are the linear program's windows
_FINER = 4  # times as many of one, with all of the other


class Path(NamedTuple):
    """The seconds of a chain of items, and the items."""

    seconds: float
    items: list[int]


def path_bound(edges: Edges, cost: ArrayLike) -> Path:
    """The longest path, each item on the kind that is fastest for it."""
    length, items = critical_path(edges, _costs(cost).min(axis=1))
    return Path(length, items)


def area_bound(cost: ArrayLike, count: ArrayLike) -> float:
    """Seconds that all work takes if it may be cut anywhere and nothing waits; a few percent less on machines of more
    than two kinds."""
    return area_prices(cost, count)[0]


def area_prices(cost: ArrayLike, count: ArrayLike) -> tuple[float, Floats]:
    """``(bound, prices)``: the area bound, and what a second on each kind is worth (float64, shape (kinds,)).

    With prices whose sum over all devices is 1, no schedule is shorter than the sum of each item's cost where it is
    cheapest: weak duality of the linear program that shares items out. The best prices of two kinds are found by
    halving; of more they are sought by multiplicative weights (Arora, Hazan, Kale, Theory of Computing 2012): a kind
    with more load than others gets dearer.
    """
    costs, counts = _costs(cost), np.asarray(count, dtype=np.float64)
    rows, repeats = np.unique(costs, axis=0, return_counts=True)
    price = np.full(len(counts), 1.0 / counts.sum())
    best, best_price = 0.0, price
    each = np.arange(len(rows))
    low, high = -_FURTHEST, _FURTHEST  # for two kinds, of the logarithm of the ratio of prices
    for step in range(_STEPS if len(counts) > 1 and len(rows) else 1):
        priced = np.where(np.isinf(rows), np.inf, rows * price)
        cheapest = priced.argmin(axis=1)
        total = float((priced[each, cheapest] * repeats).sum())
        if total > best:
            best, best_price = total, price
        load = np.bincount(cheapest, weights=rows[each, cheapest] * repeats, minlength=len(counts)) / counts
        if not load.max() or high - low < 1e-12:
            break
        if len(counts) == 2:
            middle = (low + high) / 2 if step else 0.0
            low, high = (middle, high) if load[1] > load[0] else (low, middle)
            price = np.exp([0.0, (low + high) / 2])
        else:
            price = price * np.exp(0.5 * _SHRINK**step * (load / load.max() - 0.5))
        price = price / (price * counts).sum()
    return best * (1.0 - 1e-12), best_price


def travel_times(edges: Edges, seconds: ArrayLike, delay: ArrayLike) -> tuple[Floats, Floats]:
    """``(heads, tails)``: no schedule starts an item before its head, or ends less than its tail after the item's end.

    ``seconds[i, d]`` are those of item i on device d, ``delay[e, d, f]`` what edge e takes from d to f, 0 for d = f.
    Along every edge the best pair of devices is taken, so heads and tails count transfers that no placement avoids.
    Shape (items,) each.
    """
    spent, delays = _costs(seconds), np.asarray(delay, dtype=np.float64)
    source, target, permutation = in_topological_order(edges)
    which = np.arange(len(edges))[permutation].tolist()
    begin = np.zeros(spent.shape)  # the earliest start of each item on each device
    for before, after, edge in zip(source, target, which, strict=True):
        reached = ((begin[before] + spent[before])[:, None] + delays[edge]).min(axis=0)
        np.maximum(begin[after], reached, out=begin[after])
    rest = np.zeros(spent.shape)  # the least time after an item's end on each device
    for before, after, edge in reversed(list(zip(source, target, which, strict=True))):
        reached = ((rest[after] + spent[after])[None, :] + delays[edge]).min(axis=1)
        np.maximum(rest[before], reached, out=rest[before])
    allowed = np.isfinite(spent)
    heads: Floats = np.where(allowed, begin, np.inf).min(axis=1)
    tails: Floats = np.where(allowed, rest, np.inf).min(axis=1)
    return heads, tails


def linear_bound(
    edges: Edges, cost: ArrayLike, count: ArrayLike, heads: ArrayLike | None = None, tails: ArrayLike | None = None
) -> float:
    """The linear-programming bound: items may be cut between kinds, but not overlap along an edge, and the work between
    any two of some moments must fit the devices.

    As Agullo, Beaumont, Eyraud-Dubois, Kumar (IPDPS 2016) bound Cholesky factorizations, with windows by heads and
    tails (Fernandez, Bussell, IEEE Trans. Computers 1973) in the same program. Above 6000 items, those alike share
    their variables and only the windows hold. Needs SciPy (``pip install 'plait[bounds]'``); PlaitError without it.
    """
    costs, counts = _costs(cost), np.asarray(count, dtype=np.float64)
    costs, counts = costs[:, counts > 0], counts[counts > 0]
    if not len(costs):
        return 0.0
    least = costs.min(axis=1)
    first = downward_rank(edges, least) if heads is None else np.asarray(heads, dtype=np.float64)
    last = upward_rank(edges, least) - least if tails is None else np.asarray(tails, dtype=np.float64)
    if len(costs) <= _EACH:
        return _solve(_precise(edges, costs, counts, first, last))
    return _solve(_windowed(costs, counts, first, last))


class _Program(NamedTuple):
    """Minimize the last variable, subject to ``less @ x <= limit`` and ``equal @ x == value``, x >= 0."""

    less: Any
    limit: Floats
    equal: Any
    value: Floats


def _windowed(costs: Floats, counts: Floats, heads: Floats, tails: Floats) -> _Program:
    """Shares of classes of items alike in cost, head and tail; each window must fit the work that lies in it."""
    sparse = _scipy("sparse")
    first, last = _thresholds(heads), _thresholds(tails)
    row = np.searchsorted(first, heads, side="right") - 1
    column = np.searchsorted(last, tails, side="right") - 1
    key = np.column_stack([np.where(np.isfinite(costs), costs, -1.0), row, column])
    classes, members = np.unique(key, axis=0, return_counts=True)
    return _assembled(sparse, classes, members, costs.shape[1], counts, first, last)


def _assembled(
    sparse: Any, classes: Floats, members: NDArray[np.int64], kinds: int, counts: Floats, first: Floats, last: Floats
) -> _Program:
    number = len(classes)
    cost, row, column = classes[:, :kinds], classes[:, kinds], classes[:, kinds + 1]
    where = cost >= 0
    spans = number * kinds
    lines, limits = [], []
    for h, head in enumerate(first):
        for q, tail in enumerate(last):
            inside = (row >= h) & (column >= q)
            if not inside.any():
                continue
            for kind in range(kinds):
                line = np.zeros(spans + 1)
                line[kind:spans:kinds] = np.where(inside & where[:, kind], cost[:, kind], 0.0)
                line[-1] = -counts[kind]
                lines.append(line)
                limits.append(-counts[kind] * (head + tail))
    equal = sparse.lil_matrix((number + 1, spans + 1))
    for each in range(number):
        equal[each, each * kinds : (each + 1) * kinds] = where[each].astype(np.float64)
    # A share of a kind on which the class cannot run must be nothing.
    equal[number, :spans] = (~where).ravel().astype(np.float64)
    return _Program(
        sparse.csr_matrix(np.array(lines)),
        np.array(limits),
        equal.tocsr(),
        np.concatenate([members.astype(np.float64), [0.0]]),
    )


def _precise(edges: Edges, costs: Floats, counts: Floats, heads: Floats, tails: Floats) -> _Program:
    """Shares and a start of every item: variables are shares (items x kinds), starts (items), then the makespan."""
    sparse = _scipy("sparse")
    items, kinds = costs.shape
    possible = np.isfinite(costs)
    spent = np.where(possible, costs, 0.0)
    shares = items * kinds
    width = shares + items + 1
    rows: list[NDArray[np.int64]] = []
    columns: list[NDArray[np.int64]] = []
    values: list[Floats] = []
    limits: list[Floats] = []
    height = 0

    def add(row: ArrayLike, column: ArrayLike, value: ArrayLike) -> None:
        row_, column_ = np.broadcast_arrays(np.asarray(row, dtype=np.int64), np.asarray(column, dtype=np.int64))
        rows.append(height + row_.ravel())
        columns.append(column_.ravel())
        values.append(np.broadcast_to(np.asarray(value, dtype=np.float64), row_.shape).ravel())

    pairs = np.arange(len(edges))
    source, target = edges.source.astype(np.int64), edges.target.astype(np.int64)
    for kind in range(kinds):  # start of source + its time <= start of target
        add(pairs, source * kinds + kind, spent[source, kind])
    add(pairs, shares + source, 1.0)
    add(pairs, shares + target, -1.0)
    limits.append(np.zeros(len(edges)))
    height += len(edges)
    every = np.arange(items)
    for kind in range(kinds):  # start + time + tail <= makespan
        add(every, every * kinds + kind, spent[:, kind])
    add(every, shares + every, 1.0)
    add(every, width - 1, -1.0)
    limits.append(-tails)
    height += items
    add(every, shares + every, -1.0)  # start >= head
    limits.append(-heads)
    height += items
    for head, tail in _windows(heads, tails):
        inside = np.flatnonzero((heads >= head) & (tails >= tail))
        for kind in range(kinds) if len(inside) else ():
            add(0, inside * kinds + kind, spent[inside, kind])
            add(0, width - 1, -counts[kind])
            limits.append(np.array([-counts[kind] * (head + tail)]))
            height += 1
    less = sparse.csr_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(height, width)
    )
    which = np.arange(shares)
    equal = sparse.csr_matrix(
        (
            np.concatenate([possible.ravel().astype(np.float64), (~possible).ravel().astype(np.float64)]),
            (np.concatenate([which // kinds, np.full(shares, items)]), np.concatenate([which, which])),
        ),
        shape=(items + 1, width),
    )
    return _Program(less, np.concatenate(limits), equal, np.concatenate([np.ones(items), [0.0]]))


def _solve(program: _Program) -> float:
    linprog = _scipy("optimize").linprog
    objective = np.zeros(program.less.shape[1])
    objective[-1] = 1.0
    solved = linprog(
        objective, A_ub=program.less, b_ub=program.limit, A_eq=program.equal, b_eq=program.value, method="highs"
    )
    if not solved.success:
        raise PlaitError(f"the linear program of the bound was not solved: {solved.message}")
    # The solver keeps constraints to about 1e-7, so the bound is taken down by that much.
    return float(solved.fun) * (1.0 - 1e-6)


def _thresholds(values: Floats, number: int = _WINDOWS) -> Floats:
    """Some of the values, ascending, the least among them."""
    chosen: Floats = np.unique(np.quantile(values, np.linspace(0.0, 1.0, number), method="lower"))
    return chosen


def _windows(heads: Floats, tails: Floats) -> list[tuple[float, float]]:
    """Pairs of a head and a tail. The ends of a schedule, where few items are left, are looked at more closely: half of
    the finer thresholds are even in time rather than in items."""
    pairs = {(head, tail) for head in _thresholds(heads).tolist() for tail in _thresholds(tails).tolist()}
    number = _WINDOWS * _FINER // 2
    for values, other in ((heads, tails), (tails, heads)):
        even = np.unique(values)
        even = even[np.searchsorted(even, np.linspace(even[0], even[-1], number))]
        fine = np.union1d(_thresholds(values, number), even).tolist()
        least = float(other.min())
        pairs |= {(each, least) if values is heads else (least, each) for each in fine}
    return sorted(pairs)


def _costs(cost: ArrayLike) -> Floats:
    costs = np.asarray(cost, dtype=np.float64)
    if costs.ndim != 2 or not costs.shape[1]:
        raise ValueError(f"cost has shape {costs.shape}; (items, kinds) is wanted")
    if bool((costs < 0).any()) or not bool(np.isfinite(costs).any(axis=1).all()):
        raise ValueError("cost must be at least 0, and finite on some kind for each item")
    return costs


def _scipy(module: str) -> Any:
    try:
        import scipy.optimize  # noqa: PLC0415  an extra
        import scipy.sparse  # noqa: PLC0415
    except ImportError:
        raise PlaitError(
            "the linear-programming bound needs SciPy: pip install 'plait[bounds]', or use the other bounds"
        ) from None
    return getattr(scipy, module)
