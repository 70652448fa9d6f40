"""Exploration of orders: a sound scheduler passes, each broken one is caught and its failure made small."""

from __future__ import annotations

import numpy as np
import plait
import pytest
from more_mutants import MORE
from mutants import MUTANTS
from plait.testing import ExplorationFailed, RandomProgram, explore, random_program, watched

DEVICES = (None, "cuda:0", "cuda:1", "gpu")


def program(seed: int) -> RandomProgram:
    return random_program(seed, 25, DEVICES)


def test_a_sound_scheduler_passes() -> None:
    assert explore(program, seeds=range(50)) == 50


def test_one_graph_under_many_orders() -> None:
    chosen = random_program(3, 40, DEVICES)
    assert explore(chosen.graph, chosen.inputs, seeds=range(25)) == 25


@pytest.mark.parametrize("name", [*MUTANTS, *MORE])
def test_a_broken_scheduler_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "BUSY_S", 3.0)
    with {**MUTANTS, **MORE}[name](), pytest.raises(ExplorationFailed) as caught:
        explore(program, seeds=range(1000), shrink=False)
    assert f"seed {caught.value.seed}" in str(caught.value)


def test_what_stands_still_is_named() -> None:
    with (
        MORE["a_claim_that_never_has_its_turn"](),
        pytest.raises(ExplorationFailed, match="nothing moves any more") as it,
    ):
        explore(program, seeds=range(20), shrink=False)
    assert "of memory in cuda:" in it.value.reason


def test_what_is_freed_in_a_stream_that_goes_on_at_once_locks_nothing() -> None:
    """Seed 1 frees a value behind a barrier of a device, whose end is heard of while it is freed."""
    assert explore(program, seeds=[1, 53, 78, 225]) == 4


def test_what_fails_is_made_small() -> None:
    with MUTANTS["a_stale_replica"](), pytest.raises(ExplorationFailed) as caught:
        explore(program, seeds=range(1000))
        small, seed = caught.value.graph, caught.value.seed
        assert len(small.items) <= 8
        inputs = program(seed).inputs
        with pytest.raises(ExplorationFailed):
            explore(small, inputs, seeds=[seed], shrink=False)


def test_items_that_race_are_caught() -> None:
    """What an item does beside what it says is no edge, and some order shows it."""
    log: list[int] = []

    def spoil(value: np.ndarray, number: int) -> int:
        log.append(number)
        return int(value.sum()) + len(log)

    graph = plait.Graph("racy")
    x = graph.input("x")
    for number in range(6):
        graph.output(str(number), graph.call(spoil, x, number))
    with pytest.raises(ExplorationFailed, match="differs"):
        explore(graph, {"x": np.ones(3)}, seeds=range(20), shrink=False)
