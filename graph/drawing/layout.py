"""A layered layout: boxes in rows, every edge downward, few crossings (Sugiyama, Tagawa, Toda, IEEE SMC 1981)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from plait.graph.drawing.rows import assign_rows
from plait.graph.drawing.settle import settle
from plait.graph.edges import Edges

GAP_X, GAP_Y, MOST_GAP_Y = 16.0, 30.0, 84.0
PASSING, GAP_PASSING = 2.0, 4.0  # what an edge takes in a row that it passes through, and between two such
SWEEPS, LARGE = 10, 5000
SLACK = 1.08  # how much wider than its fullest row a picture may be, so that edges run straighter

Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Where boxes stand, by their index, and how edges run, in the order of the edges. All lengths are pixels.

    ``x`` is the left and ``y`` the upper side of each box. A route alternates between straight pieces inside rows and
    curves between them: its points are (end of a box or row, begin of the next) and so on, each no higher than the
    one before.
    """

    x: list[float]
    y: list[float]
    routes: list[list[Point]]
    width: float
    height: float


def lay_out(edges: Edges, widths: Sequence[float], height: float) -> Layout:
    """Place boxes of the given ``widths`` (shape (count,)) and one ``height``; the edges must hold no cycle."""
    row = assign_rows(edges, widths, height, GAP_X, GAP_Y)
    chains, rows, sizes = _with_passing(edges, row, widths)
    above, below = _neighbours(chains, len(sizes))
    _order(rows, above, below)
    x = _coordinates(rows, above, below, sizes)
    tops = _tops(rows, below, x, height)
    left = min((x[node] - sizes[node] / 2 for node in range(len(sizes))), default=0.0)
    x = [at - left for at in x]
    count = edges.count
    leaving, entering = _ports(chains, x, widths)
    place = {node: index for index, each in enumerate(rows) for node in each}
    routes = []
    for index, chain in enumerate(chains):
        points = [(x[chain[0]] + leaving[index], tops[place[chain[0]]] + height)]
        for node in chain[1:-1]:
            points += [(x[node], tops[place[node]]), (x[node], tops[place[node]] + height)]
        points.append((x[chain[-1]] + entering[index], tops[place[chain[-1]]]))
        routes.append(points)
    return Layout(
        [x[node] - widths[node] / 2 for node in range(count)],
        [tops[place[node]] for node in range(count)],
        routes,
        max((x[node] + sizes[node] / 2 for node in range(len(sizes))), default=0.0),
        (tops[-1] + height) if tops else 0.0,
    )


def _with_passing(
    edges: Edges, row: list[int], widths: Sequence[float]
) -> tuple[list[list[int]], list[list[int]], list[float]]:
    """Edges as chains with a node in each row that they pass; the nodes of each row; the widths of all nodes."""
    rows: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    for node, at in enumerate(row):
        rows[at].append(node)
    sizes = list(widths)
    chains = []
    for source, target in zip(edges.source.tolist(), edges.target.tolist(), strict=True):
        chain = [source]
        for at in range(row[source] + 1, row[target]):
            rows[at].append(len(sizes))
            chain.append(len(sizes))
            sizes.append(PASSING)
        chains.append([*chain, target])
    return chains, rows, sizes


def _neighbours(chains: list[list[int]], count: int) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            above[lower].append(upper)
            below[upper].append(lower)
    return above, below


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order each row by the mean place of its neighbours, to and fro, and keep the order with the fewest crossings."""
    place: dict[int, float] = {}
    for each in rows:
        place.update((node, index) for index, node in enumerate(each))
    total = len(place)
    best, fewest = [list(each) for each in rows], _crossings(rows, below)
    for sweep in range(SWEEPS if total < LARGE else 2):
        if not fewest:
            break
        neighbours, walk = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for each in walk:
            wanted = {
                node: sum(place[other] for other in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else place[node]
                for node in each
            }
            each.sort(key=wanted.__getitem__)
            place.update((node, index) for index, node in enumerate(each))
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(each) for each in rows], crossings
    rows[:] = best


def _crossings(rows: list[list[int]], below: list[list[int]]) -> int:
    """How many pairs of edges cross between neighbouring rows: inversions, counted in a Fenwick tree."""
    crossings = 0
    for upper, lower in itertools.pairwise(rows):
        place = {node: index + 1 for index, node in enumerate(lower)}
        tree = [0] * (len(lower) + 1)
        seen = 0
        for node in upper:
            targets = [place[other] for other in below[node]]
            for target in targets:
                at = target
                crossings += seen
                while at:
                    crossings -= tree[at]
                    at &= at - 1
            for target in targets:
                at = target
                while at < len(tree):
                    tree[at] += 1
                    at += at & -at
            seen += len(targets)
    return crossings


def _coordinates(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], sizes: list[float]
) -> list[float]:
    """The middles of all nodes: each as near as there is room to the mean of its neighbours."""
    x = [0.0] * len(sizes)
    gaps = [[_apart(sizes[a], sizes[b]) for a, b in itertools.pairwise(each)] for each in rows]
    for each, apart in zip(rows, gaps, strict=True):
        start = -(sum(apart)) / 2
        for node, at in zip(each, itertools.accumulate(apart, initial=start), strict=False):
            x[node] = at
    half = SLACK * max((sum(apart) for apart in gaps), default=0.0) / 2
    # What passes a row is drawn straight, so it counts for more.
    weight = [1.0 if size > PASSING else 3.0 for size in sizes]
    for sweep in range(SWEEPS if len(sizes) < LARGE else 4):
        both = sweep >= SWEEPS - 2
        order = list(range(len(rows))) if sweep % 2 == 0 else list(reversed(range(len(rows))))
        for index in order:
            each = rows[index]
            wanted = []
            for node in each:
                near = above[node] + below[node] if both else (above[node] if sweep % 2 == 0 else below[node])
                wanted.append(sum(x[other] for other in near) / len(near) if near else x[node])
            settled = settle(wanted, [weight[node] for node in each], gaps[index], half)
            for node, at in zip(each, settled, strict=True):
                x[node] = at
    return x


def _apart(left: float, right: float) -> float:
    both_pass = left == right == PASSING
    return (left + right) / 2 + (GAP_PASSING if both_pass else GAP_X)


def _tops(rows: list[list[int]], below: list[list[int]], x: list[float], height: float) -> list[float]:
    """The upper side of each row: further below the one before where edges go far to the side."""
    tops, top = [], 0.0
    for each in rows:
        tops.append(top)
        travel = max((abs(x[node] - x[other]) for node in each for other in below[node]), default=0.0)
        top += height + min(MOST_GAP_Y, GAP_Y + 0.07 * max(0.0, travel - 60))
    return tops


def _ports(
    chains: list[list[int]], x: list[float], widths: Sequence[float]
) -> tuple[dict[int, float], dict[int, float]]:
    """Per edge, how far from the middle of its boxes it leaves and enters, so that edges of one box part early."""
    out: dict[int, list[int]] = {}
    into: dict[int, list[int]] = {}
    for index, chain in enumerate(chains):
        out.setdefault(chain[0], []).append(index)
        into.setdefault(chain[-1], []).append(index)
    leaving: dict[int, float] = {}
    entering: dict[int, float] = {}
    for ports, of_node, other in ((leaving, out, 1), (entering, into, -2)):
        for node, mine in of_node.items():
            mine.sort(key=lambda index: x[chains[index][other]])
            step = min(12.0, 0.7 * widths[node] / len(mine))
            for rank, index in enumerate(mine):
                ports[index] = (rank - (len(mine) - 1) / 2) * step
    return leaving, entering


def curve(points: Sequence[Point]) -> str:
    """The ``d`` of an SVG path along a route."""
    (x, y), *rest = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for index, (next_x, next_y) in enumerate(rest):
        if index % 2:
            parts.append(f"L{next_x:.1f} {next_y:.1f}")
        else:
            bend = (next_y - y) / 2
            parts.append(f"C{x:.1f} {y + bend:.1f} {next_x:.1f} {next_y - bend:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return "".join(parts)
