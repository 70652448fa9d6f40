"""What items were given and made is let go of when its run is: nothing keeps it until the cyclic collector comes."""

import asyncio
import gc
import weakref
from collections import namedtuple

import numpy as np
import plait
import pytest
from plait.scheduler.containers import leaves

Pair = namedtuple("Pair", "first second")
SEEN: list[weakref.ref[np.ndarray]] = []


def seen(*values):
    SEEN.extend(weakref.ref(array) for array in leaves(values) if isinstance(array, np.ndarray))


def plain(*values):
    seen(*values)
    return sum(array.sum() for array in leaves(values)) + np.zeros(8)


async def awaited(value):
    seen(value)
    return value + 1


def doubled(array):
    seen(array)
    array *= 2


def viewed(array):
    seen(array)
    return {"view": array[2:], "pair": Pair(array, array[1:])}


def wavering(array, failures):
    seen(array)
    if failures:
        raise failures.pop()
    return array + 1


def everything(failures):
    g = plait.Graph("everything")
    x, b = g.input("x", (8,)), g.buffer("b", (8,), fill=1.0)
    inside = g.call(viewed, b)
    g.call(doubled, plait.update(b))  # after which what shares its memory had to be copied
    g.call(doubled, plait.update(b[:4]))
    g.copy(b[4:], x[:4])
    sums = [g.call(plain, inside), g.call(plain, [x, b]), g.call(plain, {"x": x}), g.call(awaited, x)]
    sums.append(g.options(retries=1).call(wavering, x, failures))
    sums.append(g.call(plain, b))
    g.output("inside", inside)
    g.output("all", g.call(plain, *sums))
    return g


def from_plain_code(g, options):
    return plait.run(g, x=np.ones(8), scheduler=options)["all"].shape


def from_asyncio(g, options):
    async def main():
        return (await plait.run_async(g, x=np.ones(8), scheduler=options))["all"].shape

    return asyncio.run(main())


@pytest.mark.parametrize("options", [{}, {"streams": 2, "trace": True}, {"memory_limit": 1 << 20, "devices": "host"}])
@pytest.mark.parametrize("run", [from_plain_code, from_asyncio])
def test_arrays_go_with_their_run_and_their_outputs(options, run):
    SEEN.clear()
    g = everything([])
    gc.collect()
    gc.disable()
    try:
        assert run(g, options) == (8,)
        assert SEEN and not any(reference() is not None for reference in SEEN)
    finally:
        gc.enable()
