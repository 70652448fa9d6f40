"""Cost models: learnt from runs, robust to outliers, kept in a file that stays whole, and explored where unknown."""

import json
import statistics
import threading

import numpy as np
import plait
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plait import Graph, PlaitError
from plait.devices import HOST, GpuDevice, library
from plait.scheduler.compile import compile_plan
from plait.scheduler.policies.cost_model import KEPT, CostModel, size_class

times = st.floats(1e-6, 1e3)


def filled(*samples, name="f", kind="host", nbytes=1024):
    model = CostModel()
    for seconds in samples:
        model.observe(name, kind, nbytes, seconds)
    return model


def test_what_was_never_seen_is_not_known():
    model = filled(1.0)
    assert model.seconds("g", "host", 1024) is None
    assert model.seconds("f", "cuda", 1024) is None
    assert model.is_guess("f", "host", 1024)
    assert not filled(1.0, 1.0).is_guess("f", "host", 1024)


@given(st.lists(times, min_size=1, max_size=60))
def test_a_time_lies_within_its_newest_samples(samples):
    kept = samples[-KEPT:]
    assert min(kept) <= filled(*samples).seconds("f", "host", 1024) <= max(kept)


@given(times, st.integers(1, 9))
def test_a_few_outliers_change_nothing(usual, wild):
    samples = [usual] * 20 + [1e6] * wild
    assert filled(*samples).seconds("f", "host", 1024) == usual


def test_old_samples_are_let_go():
    assert filled(*[9.0] * 100, *[1.0] * KEPT).seconds("f", "host", 1024) == 1.0


def test_between_sizes_it_interpolates_and_beyond_them_it_grows_with_the_bytes():
    model = filled(1.0, 1.0, nbytes=1 << 10)
    for _ in range(2):
        model.observe("f", "host", 1 << 14, 16.0)
    assert model.seconds("f", "host", 1 << 12) == pytest.approx(4.0)
    assert model.seconds("f", "host", 1 << 16) == pytest.approx(64.0)
    assert model.seconds("f", "host", 1) == 1.0
    assert model.seconds("f", "host") == statistics.median([1.0, 16.0])


def test_samples_of_unknown_size_count_where_there_are_no_others():
    model = filled(2.0, nbytes=None)
    assert model.seconds("f", "host", 1 << 30) == 2.0
    model.observe("f", "host", 1 << 20, 5.0)
    assert model.seconds("f", "host", 1 << 20) == 5.0


@given(st.integers(0, 1 << 50))
def test_a_size_class_is_the_power_of_two_at_or_above(nbytes):
    exponent = size_class(nbytes)
    assert nbytes <= 2**exponent
    assert exponent == 0 or nbytes > 2 ** (exponent - 1)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_an_impossible_time_is_refused(wrong):
    with pytest.raises(PlaitError, match="cannot be observed"):
        CostModel().observe("f", "host", 1, wrong)


def test_a_file_keeps_it_and_two_writers_add_up(tmp_path):
    path = tmp_path / "costs.json"
    first, second = CostModel.load(path), CostModel.load(path)
    first.observe("f", "host", 8, 1.0)
    second.observe("g", "cuda", 8, 2.0)
    first.save(path)
    second.save(path)
    loaded = CostModel.load(path)
    assert (loaded.seconds("f", "host", 8), loaded.seconds("g", "cuda", 8)) == (1.0, 2.0)
    first.save(path)  # nothing new: nothing is added twice
    assert json.loads(path.read_text())["costs"][0]["seconds"] == [1.0]


def test_writers_at_once_never_leave_a_broken_file(tmp_path):
    path = tmp_path / "costs.json"
    CostModel().save(path)
    errors = []

    def write(number):
        try:
            for turn in range(20):
                model = CostModel.load(path)
                model.observe(f"f{number}", "host", 8, float(turn))
                model.save(path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(CostModel.load(path)) >= 1
    assert [each.name for each in tmp_path.iterdir()] == ["costs.json"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": "other", "costs": []}', '{"format": "plait costs 1", "costs": [{"kernel": "f"}]}'],
)
def test_another_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "notes.json"
    path.write_text(content)
    with pytest.raises(PlaitError, match=r"notes\.json is no cost model"):
        CostModel.load(path)


async def test_a_missing_folder_is_said_before_anything_runs(tmp_path):
    with pytest.raises(PlaitError, match="there is no folder"):
        async with plait.open_scheduler(devices="host", costs=tmp_path / "nowhere" / "costs.json"):
            raise AssertionError("opened")


def chain():
    g = Graph("chain")
    x = g.input("x", shape=(64,), dtype="float64")
    g.output("y", g.call(np.negative, g.call(np.sqrt, x)))
    return g


async def test_a_run_writes_the_file_and_the_next_plan_reads_it(tmp_path):
    path = tmp_path / "costs.json"
    graph = chain()
    async with plait.open_scheduler(devices="host", costs=path) as scheduler:
        for _ in range(3):
            await scheduler.run(graph, x=np.ones(64))
    model = CostModel.load(path)
    took = {name: model.seconds(name, "host") for name in ("sqrt", "negative")}
    assert all(seconds > 0 for seconds in took.values())
    async with plait.open_scheduler(devices="host", costs=path) as scheduler:
        plan = scheduler.compile(graph)
        assert plan.known_cost[plan.position("sqrt#0")] == model.seconds("sqrt", "host", 512)
    async with plait.open_scheduler(devices="host") as scheduler:
        assert not scheduler.compile(graph).known_cost.any()


def test_a_run_from_plain_code_teaches_too(tmp_path):
    path = tmp_path / "costs.json"
    plait.run(chain(), x=np.ones(64), scheduler={"devices": "host", "costs": path})
    assert len(CostModel.load(path)) == 2


async def test_an_untraced_run_teaches_nothing(tmp_path):
    path = tmp_path / "costs.json"
    async with plait.open_scheduler(devices="host", costs=path, trace=False) as scheduler:
        await scheduler.run(chain(), x=np.ones(64))
    assert not path.exists()


async def test_a_plan_is_made_anew_once_a_cost_is_known():
    model, graph = CostModel(), chain()
    async with plait.open_scheduler(devices="host", costs=model) as scheduler:
        first = scheduler.compile(graph)
        assert scheduler.compile(graph) is first
        for _ in range(3):
            await scheduler.run(first, x=np.ones(64))
        second = scheduler.compile(graph)
        assert second is not first
        assert scheduler.compile(graph) is second


async def test_a_trace_gives_a_model():
    async with plait.open_scheduler(devices="host") as scheduler:
        run = scheduler.start(chain(), x=np.ones(64))
        await run
    model = CostModel.from_trace(run.trace)
    assert model.seconds("sqrt", "host") > 0
    assert model.seconds("copy", "host") is None


library.register("policies.double", "host", lambda x: x + x)
library.register("policies.double", "cuda", lambda x: x + x)


def places(model):
    """Where the plan puts six items that the host and a GPU could run."""
    g = Graph("doubles")
    x = g.input("x", shape=(8,), dtype="float32")
    for k in range(6):
        g.output(f"y{k}", g.call("policies.double", x))
    plan = compile_plan(g.program(), (HOST.devices()[0], GpuDevice("cuda", 0)), (2, 2), "critical-path", model)
    return [plan.place(plan.position(f"policies.double#{k}")) for k in range(6)]


def test_unknown_costs_are_explored_on_every_kind():
    model = CostModel()
    assert {"host", "cuda:0"} == set(places(model))
    for kind, seconds in (("host", 1e-6), ("cuda", 9.0)):
        for _ in range(2):
            model.observe("policies.double", kind, None, seconds)
    assert places(model) == ["host"] * 6


def test_a_kind_that_is_still_a_guess_gets_a_few_items_only():
    model = CostModel()
    for _ in range(2):
        model.observe("policies.double", "host", None, 1e-6)
    model.observe("policies.double", "cuda", None, 9.0)
    assert places(model).count("cuda:0") == 2
