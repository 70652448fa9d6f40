"""Programs to test and measure with: layered no-ops, and random programs over slices of shared buffers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from plait.graph import Graph, read, update, uses, write


def no_op(*_: object) -> None:
    """Nothing, whatever it is given."""


def layered(layers: int, width: int, function: Any = no_op) -> Graph:
    """``layers`` x ``width`` calls of ``function``; each reads three results of the layer before it."""
    graph = Graph("layered")
    call = graph.call
    before = [call(function) for _ in range(width)]
    for _ in range(layers - 1):
        before = [call(function, before[index - 2], before[index - 1], before[index]) for index in range(width)]
    graph.output("last", before[-1])
    return graph


@dataclass(frozen=True)
class RandomProgram:
    """A random graph and the inputs to run it with; the same seed gives the same program."""

    graph: Graph
    inputs: dict[str, Any]
    seed: int


def random_program(seed: int, items: int = 40, devices: Sequence[str | None] = ()) -> RandomProgram:
    """Integer arithmetic on slices of shared buffers and on results, so that any wrong order shows in the bytes.

    With ``devices`` (names, None for no wish) every item that can asks for one of them at random. A few items are more
    urgent than others.
    """
    random, urgent = Random(seed), Random(-1 - seed)
    graph = Graph(f"random-{seed}")
    shapes = [(random.randint(4, 24), random.randint(1, 6)) for _ in range(random.randint(1, 4))]
    pool: list[Any] = [graph.buffer(f"buffer{k}", shape, "int64", fill=k + 1) for k, shape in enumerate(shapes)]
    inputs = {}
    for k in range(random.randint(0, 2)):
        shape = (random.randint(4, 24), random.randint(1, 6))
        inputs[f"input{k}"] = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape)
        pool.append(graph.input(f"input{k}", shape, "int64"))
    results: list[Any] = []
    for k in range(items):
        with (
            graph.defaults(device=random.choice(devices)) if devices else nullcontext(),
            graph.defaults(priority=urgent.choice((0, 0, 0, 0, 0, 1, 2, -1))),
        ):
            _random_item(graph, random, pool, results, k)
    for k, buffer in enumerate(pool):
        graph.output(f"pool{k}", buffer)
    for k, result in enumerate(random.sample(results, min(5, len(results)))):
        graph.output(f"result{k}", result)
    return RandomProgram(graph, inputs, seed)


def _random_item(graph: Graph, random: Random, pool: list[Any], results: list[Any], k: int) -> None:
    kind = random.random()
    extra: list[Any] = [uses(random.choice("ab"), shared=random.random() < 0.3)] if random.random() < 0.1 else []
    if kind < 0.35:
        target = _slice(random, random.choice(pool))
        sources = [_slice(random, random.choice(pool)) for _ in range(random.randint(0, 2))]
        sources += random.sample(results, min(len(results), random.randint(0, 2)))
        graph.call(mix_into, update(target), k, *sources, *extra)
    elif kind < 0.5:
        graph.call(
            overwrite, write(_slice(random, random.choice(pool))), k, *random.sample(results, min(len(results), 1))
        )
    elif kind < 0.6:
        graph.fill(_slice(random, random.choice(pool)), k)
    elif kind < 0.65 and k:
        graph.barrier()
    else:
        sources = [read(_slice(random, random.choice(pool)))]
        sources += random.sample(results, min(len(results), random.randint(0, 3)))
        function = amix if random.random() < 0.1 else mix
        where = graph.options(device=None) if function is amix else graph
        results.append(where.call(function, k, [sources[0], {"rest": sources[1:]}], *extra))


def _slice(random: Random, buffer: Any) -> Any:
    if random.random() < 0.2:
        return buffer
    keys: list[Any] = []
    for size in buffer.shape[: random.randint(1, 2)]:
        if random.random() < 0.2:
            keys.append(random.randrange(-size, size))
        else:
            start, stop = sorted((random.randint(0, size), random.randint(0, size)))
            step = random.choice((None, 1, 2, 3))
            keys.append(slice(start, stop, step) if random.random() < 0.7 else slice(None, None, -(step or 1)))
    return buffer[tuple(keys)]


def total(value: Any) -> Any:
    """A sum over nested integers and arrays that no two different orders of writing share by accident.

    Of device arrays it is a device array of no dimensions: nothing waits for it.
    """
    if isinstance(value, dict):
        return total(list(value.values()))
    if isinstance(value, list | tuple):
        return sum((place + 1) * total(part) for place, part in enumerate(value)) % 1_000_003
    if isinstance(value, int):
        return value % 1_000_003
    like = {} if isinstance(value, np.ndarray | np.generic) else {"like": value}
    weights = np.arange(1, value.size + 1, dtype=np.int64, **like)
    return (value.ravel() * weights).sum() % 1_000_003


def mix(*values: Any) -> Any:
    """A number that depends on every value and its place."""
    return total(list(values))


async def amix(*values: Any) -> Any:
    """As ``mix``, awaited."""
    return total(list(values))


def mix_into(target: Any, *values: Any) -> None:
    """Change ``target`` in place by what is in it and ``values``."""
    target *= 3
    target += total(list(values)) + 1
    target %= 1_000_003


def overwrite(target: Any, *values: Any) -> None:
    """Overwrite ``target`` with a number that depends on ``values``."""
    target[...] = total(list(values))
