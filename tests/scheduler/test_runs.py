"""Runs: results, inputs, early outputs, cancel, timeouts, retries, failures, groups, priorities, several at once."""

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import plait
import pytest
import trio
from plait import Graph, GraphError, PlaitError, PlanError, RunCancelled, RunFailed, open_scheduler
from plait.devices import bounded_blas
from plait.testing import check_plan, layered


class Boom(Exception):
    pass


def boom(*_):
    raise Boom("on purpose")


def blocker():
    """A function that blocks its stream until told, and the events around it."""
    entered, release = threading.Event(), threading.Event()

    def block(*_):
        entered.set()
        assert release.wait(30)

    return block, entered, release


async def wait_entered(entered):
    await trio.to_thread.run_sync(entered.wait)


def norm_graph():
    g = Graph("norm")
    x = g.input("x", shape=(3,), dtype="float32")
    y = g.call(np.multiply, x, g.constant(np.full(3, 2, "float32"), name="w"))
    g.output("norm", g.call(np.sum, y))
    return g


def test_run_gives_the_outputs():
    assert plait.run(norm_graph(), x=np.ones(3, "float32")) == {"norm": 6.0}


async def test_a_plan_runs_many_times_and_side_by_side():
    async with open_scheduler(streams=2) as scheduler:
        plan = scheduler.compile(norm_graph())
        check_plan(plan)
        assert scheduler.compile(plan.program.graph) is plan
        runs = [scheduler.start(plan, x=np.full(3, k, "float32")) for k in range(50)]
        assert [(await run)["norm"] for run in runs] == [6.0 * k for k in range(50)]


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({}, "missing input 'x'"),
        ({"y": 1, "x": np.ones(3, "float32")}, "no input 'y'"),
        ({"x": np.ones(4, "float32")}, r"shape \(3,\), not \(4,\)"),
        ({"x": np.ones(3)}, "dtype float32, not float64"),
        ({"x": object()}, "'x'"),
    ],
)
def test_wrong_inputs_fail_before_anything_runs(inputs, says):
    ran = []
    g = norm_graph()
    g.call(ran.append, 1)
    with pytest.raises(GraphError, match=says):
        plait.run(g, **inputs)
    assert not ran


def test_lists_and_scalars_become_arrays_of_the_declared_dtype():
    assert plait.run(norm_graph(), x=[1, 2, 3]) == {"norm": 12.0}


def test_inputs_with_awkward_names_come_in_a_mapping():
    g = Graph()
    g.output("y", g.call(abs, g.input("timeout")))
    assert plait.run(g, {"timeout": -3}) == {"y": 3}


async def test_the_graph_cannot_change_while_it_runs():
    block, entered, release = blocker()
    g = Graph("busy")
    g.call(block)
    async with open_scheduler(streams=1) as scheduler:
        run = scheduler.start(g)
        await wait_entered(entered)
        for change in (lambda: g.call(abs, 1), lambda: g.input("x"), g.barrier):
            with pytest.raises(GraphError, match="graph 'busy' is running"):
                change()
        release.set()
        await run
        g.call(abs, 1)


async def test_an_output_comes_as_soon_as_it_is_ready():
    block, _, release = blocker()
    g = Graph()
    early = g.call(lambda: "early")
    g.output("early", early)
    g.output("late", g.call(block, early))
    async with open_scheduler(streams=2) as scheduler:
        run = scheduler.start(g)
        assert await run.output("early") == "early"
        assert not run.done
        release.set()
        assert (await run)["early"] == "early"
        assert await run.output("early") == "early"
        with pytest.raises(PlaitError, match="no output 'nope'"):
            await run.output("nope")


@pytest.mark.parametrize("streams", [1, 2])
async def test_cancel_waits_for_what_is_in_flight_and_starts_nothing_more(streams):
    block, entered, release = blocker()
    ran = []
    g = Graph()
    g.options(name="second").call(ran.append, g.options(name="first").call(block))
    async with open_scheduler(streams=streams) as scheduler:
        run = scheduler.start(g)
        await wait_entered(entered)
        run.cancel()
        assert not run.done
        release.set()
        with pytest.raises(RunCancelled) as caught:
            await run
        assert [error.item for error in caught.value.exceptions] == ["first"]
        assert not ran and run.done
        assert "cancelled" in run.why("second")
        assert await scheduler.run(norm_graph(), x=[1, 1, 1]) == {"norm": 6.0}


async def test_leaving_the_scope_by_an_error_stops_its_runs():
    block, entered, release = blocker()
    g = Graph()
    g.call(block)
    with pytest.raises(Boom):
        async with open_scheduler(streams=1) as scheduler:
            run = scheduler.start(g)
            await wait_entered(entered)
            release.set()
            raise Boom
    assert run.done


async def test_cancelling_around_the_scope_drains_and_propagates():
    block, entered, release = blocker()
    g = Graph()
    g.call(block)
    with trio.CancelScope() as scope:
        async with open_scheduler(streams=1) as scheduler:
            run = scheduler.start(g)
            await wait_entered(entered)
            scope.cancel()
            release.set()
            await run
    assert scope.cancelled_caught and run.done


async def test_a_cancelled_wait_leaves_the_run_alone():
    block, entered, release = blocker()
    g = Graph()
    g.output("y", g.call(block))
    async with open_scheduler(streams=1) as scheduler:
        run = scheduler.start(g)
        await wait_entered(entered)
        with trio.CancelScope() as scope:
            scope.cancel()
            await run
        assert scope.cancelled_caught
        release.set()
        assert await run == {"y": None}


async def test_a_failure_names_the_place():
    g = Graph("broken")
    bad = g.options(name="bad").call(boom, 1)
    g.options(name="after").call(abs, bad)
    with pytest.raises(RunFailed) as caught:
        async with open_scheduler(streams=2) as scheduler:
            await scheduler.run(g)
    (error,) = caught.value.exceptions
    assert (error.item, error.device) == ("bad", "host")
    assert error.stream.startswith("host/compute:")
    assert f"{__file__}:" in error.site and "bad" in str(error) and "on purpose" in str(error)
    assert isinstance(error.__cause__, Boom) and error.cause is error.__cause__
    assert caught.value.stopped == ("after",)
    assert isinstance(caught.value, PlaitError)


async def test_an_unseen_failure_is_raised_when_the_scope_ends():
    g = Graph()
    g.call(boom)
    with pytest.raises(RunFailed):
        async with open_scheduler(streams=1) as scheduler:
            scheduler.start(g)


@pytest.mark.parametrize("streams", [1, 2])
async def test_isolate_finishes_what_no_path_joins_to_the_failure(streams):
    g = Graph()
    bad = g.options(name="bad").call(boom)
    g.output("lost", g.options(name="child").call(abs, bad))
    g.output("kept", g.call(abs, -5))
    async with open_scheduler(streams=streams, on_error="isolate") as scheduler:
        run = scheduler.start(g)
        result = await run
        assert result == {"kept": 5}
        assert result.missing == ("lost",)
        assert [error.item for error in result.failed] == ["bad"]
        with pytest.raises(RunFailed):
            await run.output("lost")
        assert "skipped" in run.why("child")


async def test_retries_try_again_and_list_every_cause():
    attempts = []

    def flaky(target):
        target += 1
        attempts.append(target.copy())
        if len(attempts) < 3:
            raise Boom(len(attempts))

    g = Graph()
    acc = g.buffer("acc", (2,), fill=0)
    g.options(retries=2).call(flaky, plait.update(acc))
    g.output("acc", acc)
    result = plait.run(g)
    assert len(attempts) == 3
    assert result["acc"].tolist() == [1, 1], "an attempt must start from the bytes that the first one saw"
    g2 = Graph()
    g2.options(retries=2, name="hopeless").call(boom)
    with pytest.raises(RunFailed) as caught:
        plait.run(g2)
    (error,) = caught.value.exceptions
    assert len(error.causes) == 3 and "after 3 attempts" in str(error)


async def test_an_async_item_retries_and_times_out(autojump_clock):
    tries = []

    async def slow(value):
        tries.append(value)
        await trio.sleep(10 if len(tries) == 1 else 0.1)
        return value

    g = Graph()
    g.output("y", g.options(timeout=1.0, retries=1).call(slow, 7))
    async with open_scheduler(streams=1) as scheduler:
        assert await scheduler.run(g) == {"y": 7}
    assert len(tries) == 2
    g2 = Graph()
    g2.options(timeout=1.0, name="sleeper").call(trio.sleep, 100)
    with pytest.raises(RunFailed) as caught:
        async with open_scheduler(streams=1) as scheduler:
            await scheduler.run(g2)
    assert isinstance(caught.value.exceptions[0].cause, TimeoutError)


async def test_a_run_has_a_deadline(autojump_clock):
    g = Graph()
    g.options(name="sleeper").call(trio.sleep, 100)
    async with open_scheduler(streams=1) as scheduler:
        run = scheduler.start(g, timeout=3.0)
        with pytest.raises(RunFailed) as caught:
            await run
        assert not isinstance(caught.value, RunCancelled)
        assert trio.current_time() == pytest.approx(3.0, abs=0.5)
        assert isinstance(caught.value.exceptions[0].cause, TimeoutError)


async def test_a_failure_stops_async_items_in_flight():
    started = trio.Event()

    async def forever():
        started.set()
        await trio.sleep_forever()

    async def fail():
        await started.wait()
        raise Boom

    g = Graph()
    g.call(forever)
    g.options(name="bad").call(fail)
    with pytest.raises(RunFailed) as caught:
        async with open_scheduler(streams=1) as scheduler:
            await scheduler.run(g)
    assert [error.item for error in caught.value.exceptions] == ["bad"]


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_group_bounds_how_many_are_in_flight(limit):
    inside, most, lock = 0, 0, trio.Lock()

    async def work(_):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        inside -= 1

    g = Graph()
    with g.group("few", limit=limit):
        for k in range(10):
            g.call(work, k)
    async with open_scheduler(streams=4) as scheduler:
        await scheduler.run(g)
    assert most == limit
    assert not lock.locked()


async def test_urgent_items_and_runs_go_first():
    order = []
    g = Graph()
    for k in range(5):
        g.options(priority=k).call(order.append, k)
    async with open_scheduler(streams=1) as scheduler:
        await scheduler.run(g)
        assert order == [4, 3, 2, 1, 0]
        order.clear()
        block, entered, release = blocker()
        first = Graph("first")
        first.call(block)
        runs = [scheduler.start(first)]
        await wait_entered(entered)
        for priority in (0, 2, 1):
            other = Graph(f"of {priority}")
            other.call(order.append, priority)
            runs.append(scheduler.start(other, priority=priority))
        await trio.testing.wait_all_tasks_blocked()
        release.set()
        for run in runs:
            await run
        assert order == [2, 1, 0]


async def test_a_user_s_arrays_are_never_changed():
    x, w = np.zeros(3), np.zeros(3)
    g = Graph()
    a, b = g.input("x"), g.constant(w, name="w")

    def bump(target):
        target += 1

    g.call(bump, plait.update(a))
    g.call(bump, plait.update(b))
    g.output("x", a)
    g.output("w", b)
    w += 7
    for _ in range(2):
        result = plait.run(g, x=x)
        assert result["x"].tolist() == [1, 1, 1] and result["w"].tolist() == [1, 1, 1]
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[::2], np.asarray, lambda a: [a, a]])
def test_a_result_that_is_a_view_does_not_change_under_its_readers(view):
    g = Graph()
    acc = g.buffer("acc", (4,), fill=1)
    seen = g.call(view, acc)

    def bump(target):
        target += 1

    g.call(bump, plait.update(acc))
    g.output("seen", g.call(lambda value: np.ravel(value).tolist(), seen))
    assert set(plait.run(g)["seen"]) == {1}


def test_values_are_let_go_at_their_last_use():
    alive = []

    class Tracked:
        pass

    def make():
        value = Tracked()
        alive.append(weakref.ref(value))
        return value

    def count(*_):
        gc.collect()
        return sum(ref() is not None for ref in alive)

    g = Graph()
    first = g.call(make)
    used = g.call(lambda value: None, first)
    g.output("alive", g.call(count, used))
    assert plait.run(g) == {"alive": 0}
    assert plait.run(g, scheduler={"streams": 2}) == {"alive": 0}


def test_more_or_fewer_results_than_outputs_is_an_error():
    g = Graph()
    g.options(outputs=2, name="three").call(lambda: (1, 2, 3))
    with pytest.raises(RunFailed, match="failed") as caught:
        plait.run(g)
    assert "outputs=2 and returned 3" in str(caught.value.exceptions[0])


def test_what_cannot_be_placed_is_a_plan_error():
    g = Graph()
    g.options(device="cuda:7", name="far").call(abs, 1)
    with pytest.raises(PlanError, match=r"'far'.*'cuda:7'"):
        plait.run(g)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"streams": 0}, "streams must be"),
        ({"policy": "heftt"}, "unknown policy 'heftt'"),
        ({"on_error": "explode"}, "on_error must be one of"),
        ({"memory_limit": -3}, "memory_limit"),
        ({"memory_limit": 1.5}, "memory_limit"),
        ({"memory_limit": {"cuda:7": 100}}, "memory_limit names"),
        ({"devices": "tpu"}, "tpu"),
    ],
)
async def test_a_scheduler_refuses_wrong_options(options, says):
    with pytest.raises(PlaitError, match=says):
        async with open_scheduler(**options):
            pass


async def test_a_closed_scheduler_says_so():
    async with open_scheduler(streams=1) as scheduler:
        pass
    with pytest.raises(PlaitError, match="closed"):
        scheduler.start(norm_graph(), x=[1, 2, 3])


async def test_why_and_progress_follow_a_run():
    block, entered, release = blocker()
    g = Graph()
    g.options(name="last").call(abs, g.options(name="middle").call(lambda _: 1, g.options(name="first").call(block)))
    async with open_scheduler(streams=1) as scheduler:
        run = scheduler.start(g)
        await wait_entered(entered)
        assert run.why("first").startswith("'first' is running on host/compute:0")
        assert run.why("last") == "'last' waits for 'middle' (waiting)"
        assert (run.progress.total, run.progress.done, run.progress.running) == (3, 0, 1)
        with pytest.raises(PlanError, match="no item is called 'nope'"):
            run.why("nope")
        release.set()
        await run
        assert run.progress.fraction == 1.0 and "done" in run.why("last")


def test_an_empty_graph_runs():
    assert plait.run(Graph()) == {}


def test_explain_names_streams_and_waits():
    async def main():
        async with open_scheduler(devices="host", streams=3) as scheduler:
            return scheduler.compile(norm_graph()).explain()

    text = trio.run(main)
    assert "3 compute streams" in text and "sum#1 after multiply#0" in text


def test_an_output_that_nothing_writes_is_there_all_the_same():
    for streams in (1, 2):
        g = Graph()
        g.output("filled", g.buffer("filled", (2,), fill=3))
        g.output("given", g.input("x"))
        g.output("constant", g.constant([1, 2]))
        g.call(trio.lowlevel.checkpoint)
        result = plait.run(g, x=5, scheduler={"streams": streams})
        assert result["filled"].tolist() == [3, 3] and result["given"] == 5 and result["constant"] == [1, 2]


async def test_equal_runs_have_fair_shares():
    g = layered(300, 300)
    small = Graph()
    small.call(abs, 1)
    async with open_scheduler(streams=1, trace=False) as scheduler:
        large = scheduler.start(g)
        await scheduler.run(small)
        assert not large.done, "a run of one item had to wait for 90,000 of another"
        await large


async def test_many_runs_of_one_plan_leave_nothing_behind():
    async with open_scheduler(streams=2) as scheduler:
        plan = scheduler.compile(layered(10, 10))

        async def held_after(runs):
            for _ in range(runs):
                await scheduler.run(plan)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        with bounded_blas(1):  # loads threadpoolctl, as the first crowded run would, whenever that comes
            await held_after(10)  # what is cached once, for ever, is in place
        tracemalloc.start()
        try:
            few, many = await held_after(10), await held_after(300)
        finally:
            tracemalloc.stop()
    assert many - few < 50_000  # a run that stayed would hold ten times that


async def test_a_graph_can_go_while_its_scheduler_stays():
    async with open_scheduler(streams=1) as scheduler:
        g = norm_graph()
        plan = weakref.ref(scheduler.compile(g))
        await scheduler.run(g, x=[1, 2, 3])
        gone = weakref.ref(g)
        del g
        gc.collect()
        assert gone() is None and plan() is None


async def test_thousands_of_outputs_come_one_by_one_without_searching_them_all():
    g = Graph()
    for k in range(5000):
        g.output(f"y{k}", g.call(abs, -k))
    async with open_scheduler(streams=1) as scheduler:
        run = scheduler.start(g)
        assert await run.output("y0") == 0
        assert (await run)["y4999"] == 4999


def test_a_result_that_nobody_reads_is_not_copied():
    class Counted(np.ndarray):
        copies = 0

        def copy(self, *args):
            type(self).copies += 1
            return super().copy(*args)

    def in_place(target):
        target += 1
        return target.view(Counted)

    g = Graph()
    acc = g.buffer("acc", (4,), fill=0)
    g.call(in_place, plait.update(acc))
    g.output("kept", g.call(in_place, plait.update(acc)))
    g.call(in_place, plait.update(acc))
    assert plait.run(g)["kept"].tolist() == [2, 2, 2, 2]
    assert Counted.copies == 1


async def test_a_graph_without_items_still_fills_its_buffers_or_says_that_it_was_cancelled():
    g = Graph()
    g.output("b", g.buffer("b", (4,), fill=2))
    async with open_scheduler(streams=2) as scheduler:
        for _ in range(50):
            assert (await scheduler.run(g))["b"].tolist() == [2, 2, 2, 2]
        run = scheduler.start(g)
        run.cancel()
        with pytest.raises(RunCancelled):
            await run
