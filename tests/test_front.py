"""The front door: from plain code, trio, asyncio, a running loop; Ctrl-C; what importing plait does not import."""

import asyncio
import contextvars
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import plait
import pytest
import trio
from plait import Graph, GraphError, RunFailed


def square_graph():
    g = Graph()
    g.output("y", g.call(np.square, g.input("x")))
    return g


def test_run_from_plain_code():
    assert plait.run(square_graph(), x=3) == {"y": 9}


def test_run_inside_a_running_asyncio_loop():
    async def cell():
        return plait.run(square_graph(), x=3)

    assert asyncio.run(cell()) == {"y": 9}


async def test_run_and_run_async_inside_trio():
    assert plait.run(square_graph(), x=3) == {"y": 9}
    assert await plait.run_async(square_graph(), x=4) == {"y": 16}


def test_run_async_from_asyncio_several_at_once():
    async def main():
        return await asyncio.gather(*(plait.run_async(square_graph(), x=k) for k in range(5)))

    assert [result["y"] for result in asyncio.run(main())] == [0, 1, 4, 9, 16]


def test_errors_cross_from_the_thread():
    def boom():
        raise ZeroDivisionError

    g = Graph()
    g.call(boom)

    async def main():
        await plait.run_async(g)

    with pytest.raises(RunFailed):
        asyncio.run(main())


def test_cancelling_in_asyncio_stops_the_run_and_waits_for_it():
    entered, release, ran = threading.Event(), threading.Event(), []

    def block():
        entered.set()
        assert release.wait(30)

    g = Graph()
    g.call(ran.append, g.call(block))

    async def main():
        task = asyncio.create_task(plait.run_async(g))
        await asyncio.to_thread(entered.wait)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done(), "the item in flight must be waited for"
        asyncio.get_running_loop().call_soon(release.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert "plait-loop" not in {thread.name for thread in threading.enumerate()}
    assert not g.running


def test_items_see_the_context_of_whoever_started_the_run():
    variable = contextvars.ContextVar("variable", default="unset")
    g = Graph()
    g.output("seen", g.call(variable.get))
    with np.errstate(divide="raise"):
        variable.set("mine")
        g.options(name="divide").call(np.divide, np.ones(1), np.zeros(1))
        with pytest.raises(RunFailed) as caught:
            plait.run(g)
    assert isinstance(caught.value.exceptions[0].cause, FloatingPointError)

    async def main():
        async with plait.open_scheduler(streams=2) as scheduler:
            g2 = Graph()
            g2.output("seen", g2.call(variable.get))
            return await scheduler.run(g2)

    assert trio.run(main) == {"seen": "mine"}


# The item in flight ends when an async item beside it is cancelled. With so long a switch interval, no other thread
# runs between that and the dispatcher's being told to stop.
SCRIPT = """
import sys, threading, plait, trio
sys.setswitchinterval(1000)
armed, release = threading.Event(), threading.Event()
async def sentinel():
    armed.set()
    try:
        await trio.sleep_forever()
    finally:
        release.set()
def first():
    armed.wait()
    print("entered", flush=True)
    release.wait()
    print("left", flush=True)
g = plait.Graph()
g.call(sentinel)
g.call(print, g.call(first), "second ran")
{call}
"""


def interrupted(command):
    """Start a child, send it Ctrl-C when its item is in flight, and return its exit status and what it printed."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "entered\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def test_an_item_may_run_a_graph_of_its_own_to_any_depth():
    def nested(depth):
        if not depth:
            return 1
        g = Graph()
        g.output("sum", g.call(lambda *parts: sum(parts), *(g.call(nested, depth - 1) for _ in range(3))))
        return plait.run(g)["sum"]

    assert nested(3) == 27


def test_a_short_run_ends_while_other_schedulers_hold_every_worker():
    entered, release = threading.Semaphore(0), threading.Event()

    def hold():
        entered.release()
        assert release.wait(60)

    long = Graph("long")
    cores = plait.devices.usable_cores()
    for _ in range(cores - 1):
        long.call(hold)
    others = threading.Thread(target=plait.run, args=(long,), kwargs={"scheduler": {"streams": max(1, cores)}})
    others.start()
    try:
        for _ in range(cores - 1):
            assert entered.acquire(timeout=60)
        assert plait.run(square_graph(), x=3, scheduler={"streams": 4}) == {"y": 9}
    finally:
        release.set()
        others.join()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a child process")
@pytest.mark.parametrize(
    "call",
    [
        "plait.run(g)",
        "async def main(): plait.run(g)\nimport asyncio; asyncio.run(main())",
        "async def main(): await plait.run_async(g)\nimport asyncio; asyncio.run(main())",
        "import trio; trio.run(plait.run_async, g)",
    ],
)
def test_ctrl_c_lets_the_item_in_flight_end_and_starts_no_other(call):
    status, out, err = interrupted([sys.executable, "-c", SCRIPT.format(call=call)])
    assert out == "left\n"
    assert status != 0 and "KeyboardInterrupt" in err


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a child process")
def test_ctrl_c_in_the_command_line_shows_one_clear_message(tmp_path):
    path = tmp_path / "slow.py"
    path.write_text(SCRIPT.format(call="graph = g"))
    status, out, err = interrupted([sys.executable, "-m", "plait.cli.main", "run", str(path)])
    assert (status, out) == (130, "left\n")
    assert err == "plait: interrupted: the run was stopped and everything it held is freed\n"


LONG = """
import sys, plait
def first():
    print("entered", flush=True)
    sys.stdin.readline()
    print("left", flush=True)
g = plait.Graph()
g.options(name="encode").call(first)
{call}
"""


def interrupted_in_a_long_item(command):
    """A child whose item goes on after a Ctrl-C, and the line that it says then."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert child.stdout.readline() == "entered\n"
    child.send_signal(signal.SIGINT)
    return child, child.stderr.readline()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a child process")
@pytest.mark.parametrize(
    "call", ["plait.run(g)", "async def main(): plait.run(g)\nimport asyncio; asyncio.run(main())"]
)
def test_ctrl_c_in_a_long_item_says_once_what_is_waited_for(call):
    child, said = interrupted_in_a_long_item([sys.executable, "-c", LONG.format(call=call)])
    assert said.startswith("plait: stopping: waiting for 'encode' (<string>:8)")
    assert said.endswith("which cannot be interrupted\n")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate("\n", timeout=60)
    assert out == "left\n" and "stopping:" not in err and "KeyboardInterrupt" in err


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a child process")
@pytest.mark.parametrize("twice", [False, True])
def test_the_command_line_offers_to_end_at_once(tmp_path, twice):
    path = tmp_path / "slow.py"
    path.write_text(LONG.format(call="graph = g"))
    child, said = interrupted_in_a_long_item([sys.executable, "-m", "plait", "run", str(path)])
    assert f"'encode' ({path}:8), which runs on host/compute:" in said and " since " in said
    assert said.endswith("; Ctrl-C again ends the process at once\n")
    if twice:
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        assert (out, err, child.returncode) == ("", "", -signal.SIGINT)
    else:
        out, err = child.communicate("\n", timeout=60)
        assert (out, child.returncode) == ("left\n", 130) and "the run was stopped" in err


def test_importing_plait_imports_no_optional_package_and_little_else():
    code = (
        "import sys, plait; plait.run; plait.Graph; plait.open_scheduler; plait.testing;"
        "bad = {'cupy', 'dask', 'matplotlib', 'IPython', 'scipy', 'PIL', 'threadpoolctl', 'pytest'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    subprocess.run([sys.executable, "-c", "import sys, plait; assert 'numpy' not in sys.modules"], check=True)


def test_every_public_name_is_there_and_devices_can_be_called():
    for name in plait.__all__:
        assert getattr(plait, name) is not None
    assert next(device.name for device in plait.devices()) == "host"
    assert plait.devices.HostStream
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = plait.nope


def summing():
    g = Graph("summing")
    g.output("total", g.call(np.sum, g.input("x")))
    return g


@pytest.mark.parametrize("name", ["devices", "streams", "policy", "memory_limit", "trace", "costs"])
def test_an_option_of_the_scheduler_given_to_run_says_where_it_goes(name):
    with pytest.raises(GraphError, match=rf"no input '{name}'.*open_scheduler\({name}=\.\.\.\).*scheduler="):
        plait.run(summing(), x=np.ones(3), **{name: 1})


def test_inputs_that_are_no_mapping_are_refused():
    with pytest.raises(GraphError, match="by keyword or in a mapping of their names, not as ndarray"):
        plait.run(summing(), np.ones(4))


@pytest.mark.parametrize("name", ["timeout", "deadline"])
@pytest.mark.parametrize("value", ["2", 0, -1, float("nan")])
def test_wrong_seconds_are_refused(name, value):
    with pytest.raises(plait.PlaitError, match=f"{name} must be a positive number of seconds"):
        plait.run(summing(), x=np.ones(3), **{name: value})


def test_a_scheduler_opened_without_trio_says_what_to_use():
    async def main():
        async with plait.open_scheduler():
            pass

    with pytest.raises(plait.PlaitError, match=r"needs a running trio loop.*run_async"):
        asyncio.run(main())


def test_a_failed_run_crosses_processes():
    def bad(_):
        raise ValueError("no")

    g = Graph("failing")
    g.output("end", g.call(bad, g.input("x")))
    with pytest.raises(plait.RunFailed) as caught:
        plait.run(g, x=1)
    there, here = pickle.loads(pickle.dumps(caught.value)), caught.value
    assert isinstance(there, plait.RunFailed) and there.stopped == here.stopped
    for name in ("item", "device", "stream", "site", "inputs"):
        assert getattr(there.exceptions[0], name) == getattr(here.exceptions[0], name)
    assert isinstance(there.exceptions[0].__cause__, ValueError)
