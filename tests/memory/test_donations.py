"""Inputs that the caller gives up: changed in place, counted as the run's own, not to be looked at again."""

from __future__ import annotations

import numpy as np
import plait
import pytest


def changing() -> plait.Graph:
    g = plait.Graph("changing")
    x = g.input("x", (100,), "float64")
    g.call(np.add, x, 1.0, out=plait.update(x))
    g.output("x", x)
    return g


@pytest.mark.parametrize("limit", [None, 1 << 20])
async def test_a_donated_input_is_changed_in_place_and_another_one_copied(limit: int | None) -> None:
    async with plait.open_scheduler(devices="host", memory_limit=limit) as scheduler:
        kept, given = np.zeros(100), np.zeros(100)
        result = await scheduler.run(changing(), x=kept)
        assert result["x"] is not kept and not kept.any()
        donation = plait.donate(given)
        run = scheduler.start(changing(), x=donation)
        result = await run
        assert result["x"] is given and given.all()
        if limit is not None:
            assert run.memory["host"].peak == 800
        with pytest.raises(plait.DeviceError, match="taken by a run of graph 'changing'"):
            _ = donation.value
        with pytest.raises(plait.DeviceError, match="taken by a run"):
            scheduler.start(changing(), x=donation)


async def test_what_is_refused_is_not_taken() -> None:
    async with plait.open_scheduler(devices="host") as scheduler:
        donation = plait.donate(np.zeros(99))
        with pytest.raises(plait.GraphError, match="shape"):
            scheduler.start(changing(), x=donation)
        assert donation.value.shape == (99,)
        fixed = np.zeros(100)
        fixed.flags.writeable = False
        with pytest.raises(plait.GraphError, match="read-only"):
            scheduler.start(changing(), x=plait.donate(fixed))


async def test_a_donated_input_makes_room_like_anything_else() -> None:
    g = plait.Graph("room")
    x = g.input("x", (128,), "float64")
    made = [g.options(nbytes=1024).call(np.full, 128, float(k)) for k in range(4)]
    g.barrier()
    pairs = [g.options(nbytes=1024).call(np.add, made[k], made[3 - k]) for k in range(2)]
    g.barrier()
    g.call(np.add, x, pairs[0], out=plait.update(x))
    g.output("x", x)
    async with plait.open_scheduler(devices="host", memory_limit=3 * 1024) as scheduler:
        run = scheduler.start(g, x=plait.donate(np.ones(128)))
        assert np.array_equal((await run)["x"], np.full(128, 4.0))
    assert run.memory["host"].peak <= 3 * 1024
