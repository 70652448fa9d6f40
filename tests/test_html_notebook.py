"""In a real kernel: both ways to run, interrupts, errors, two cells at once, what is displayed."""

import re
import time

import pytest

jupyter_client = pytest.importorskip("jupyter_client", reason="needs jupyter_client, part of the extra 'dev'")
pytest.importorskip("ipykernel", reason="needs ipykernel, part of the extra 'dev'")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SETUP = """
import asyncio, threading, time
import numpy as np
import plait

def quick():
    g = plait.Graph("quick")
    g.output("y", g.call(np.add, g.input("x"), 1))
    return g

def waits():
    g = plait.Graph("waits")
    for k in range(200):
        g.options(name=f"step {k}").call(time.sleep, 0.05)
    return g

def boom(x):
    return np.linalg.inv(x)

g = quick()
"""


class Cells:
    """A kernel to run cells in."""

    def __init__(self):
        self.manager = jupyter_client.KernelManager()
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code, interrupt_at=None):
        """What a cell published: (kind, text or bundle). ``interrupt_at``: stop it when it prints this."""
        sent = self.client.execute(code)
        found = []
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return found
            if kind == "error":
                found.append((content["ename"], "\n".join(content["traceback"])))
            elif kind == "stream":
                found.append((content["name"], content["text"]))
                if interrupt_at is not None and interrupt_at in content["text"]:
                    self.manager.interrupt_kernel()
            elif "data" in content:
                found.append((kind, content["data"]))

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def cells():
    found = Cells()
    assert found.run(SETUP) == []
    yield found
    found.close()


def test_both_ways_to_run_work_in_a_cell(cells):
    ((_, first),) = cells.run("plait.run(g, x=1)")
    ((_, second),) = cells.run("await plait.run_async(g, x=1)")
    assert first["text/plain"] == second["text/plain"] == "{'y': np.int64(2)}"


def test_trio_cells_run_too(cells):
    cells.run("%autoawait trio")
    ((_, found),) = cells.run("await plait.run_async(g, x=5)")
    cells.run("%autoawait asyncio")
    assert found["text/plain"] == "{'y': np.int64(6)}"


def test_two_cells_run_at_once(cells):
    cells.run("one = asyncio.create_task(plait.run_async(quick(), x=1))")
    cells.run("two = asyncio.create_task(plait.run_async(quick(), x=2))")
    ((_, found),) = cells.run("(await one)['y'] + (await two)['y'] + plait.run(g, x=3)['y']")
    assert found["text/plain"] == "np.int64(9)"


def test_a_graph_and_a_run_display_themselves_as_html_and_svg(cells):
    for code in ("g", "plait.run(g, x=1, live=True).run"):
        found = cells.run(code)[-1][1]
        assert found["text/html"].startswith('<div class="plait-view">')
        assert found["image/svg+xml"].startswith("<svg ")


def test_a_live_run_leaves_its_final_picture_under_the_cell(cells):
    found = cells.run("_ = plait.run(g, x=1, live=True)")
    assert "1 of 1 items done" in found[-1][1]["text/html"]
    found = cells.run("_ = await plait.run_async(g, x=1, live=True)")
    assert "1 of 1 items done" in found[-1][1]["text/html"]


@pytest.mark.parametrize("call", ["plait.run(long)", "await plait.run_async(long)"])
def test_an_interrupt_stops_the_run(cells, call):
    cells.run("long = waits()")
    begun = time.monotonic()
    found = cells.run(f"print('begun', flush=True)\n{call}", interrupt_at="begun")
    assert found[-1][0] in ("KeyboardInterrupt", "CancelledError")
    assert time.monotonic() - begun < 8  # all of it takes ten seconds
    left = cells.run("print([t.name for t in threading.enumerate() if t.name == 'plait-loop'], long.running)")
    assert left[0][1].strip() == "[] 0"


def test_an_error_shows_the_item_and_the_users_own_line_first(cells):
    found = cells.run(
        "h = plait.Graph('bad')\n"
        "h.options(name='after').call(abs, h.options(name='invert').call(boom, np.zeros((2, 2))))\n"
        "plait.run(h)"
    )
    ((name, text),) = found
    lines = [line for line in text.split("\n") if line]
    assert name == "RunFailed"
    assert "item 'invert'" in lines[1]
    assert "LinAlgError" in lines[2]
    assert "in boom, Cell In[" in lines[3]
    assert "return np.linalg.inv(x)" in lines[4]
    assert "frames of plait and of libraries" in text
    assert "not run because of it: after" in text
    assert lines[-1].endswith("3 plait.run(h)")
    assert "straight.py" not in text
    ended = cells.run("try:\n    plait.run(h, live=True)\nexcept plait.RunFailed:\n    pass")
    assert re.search(r"recorded at Cell In\[\d+\], line 2", ended[-1][1]["text/html"])
    assert "front.py" not in text


def test_a_handler_that_the_user_set_stays_in_charge(cells):
    cells.run(
        "def told(shell, kind, value, traceback, tb_offset=None):\n    print('told', kind.__name__)\n"
        "get_ipython().set_custom_exc((ZeroDivisionError,), told)"
    )
    cells.run("plait.run(h)")
    assert cells.run("1 / 0") == [("stdout", "told ZeroDivisionError\n")]
    assert cells.run("plait.run(h)")[0][0] == "RunFailed"
