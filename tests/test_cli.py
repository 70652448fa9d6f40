"""The command line: what each command prints, and that a mistake is one line that says what to change."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from plait.cli import devices
from plait.cli.main import main
from plait.devices.gpu.describe import GpuDescription
from plait.devices.platforms import AbsentPlatform

PROGRAM = """
import networkx as nx
import numpy as np
import plait

graph = plait.Graph("demo")
a = graph.input("a")
graph.output("total", graph.options(name="sum").call(np.sum, a))

def build(size: int, scale: float = 1.0):
    g = plait.Graph("built")
    g.output("ones", g.call(np.full, size, scale))
    return g

def boom():
    raise ValueError("on purpose")

failing = plait.Graph("failing")
failing.options(name="after").call(abs, failing.options(name="bad").call(boom))

dag = nx.DiGraph()
dag.add_node("one", work=lambda: 1)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    np.save(tmp_path / "a.npy", np.arange(4.0))
    return "program.py"


def test_run_prints_a_summary_and_writes_a_trace(program, capsys):
    assert main(["run", program, "--input", "a=a.npy", "--trace", "run.json", "--streams", "2"]) == 0
    out = capsys.readouterr().out
    for part in ("demo: 1 items in", "host/compute:0", "critical path", "sum", "peak memory", "output total: 6.0", "▕"):
        assert part in out
    events = json.loads(Path("run.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["sum"]
    lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"host/compute:0", "host/compute:1", "host/copy:0", "loop"} <= lanes


def test_costs_are_kept_and_the_bound_is_shown(program, capsys):
    arguments = [
        "run",
        program,
        "--input",
        "a=a.npy",
        "--costs",
        "costs.json",
        "--policy",
        "fifo+heft",
        "--deadline",
        "60",
    ]
    assert main(arguments) == 0
    assert "times the bound of" in capsys.readouterr().out
    assert [entry["kernel"] for entry in json.loads(Path("costs.json").read_text())["costs"]] == ["sum"]


def test_a_function_is_built_from_inputs_and_a_digraph_runs(program, capsys):
    assert main(["run", f"{program}:build", "--input", "size=3", "--input", "scale=2"]) == 0
    assert "output ones: array (3,) float64, 2 to 2" in capsys.readouterr().out
    assert main(["run", f"{program}:dag"]) == 0
    assert "output one: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "nope.py"], "there is no file 'nope.py'"),
        (["run", "program.py:nope"], "defines no 'nope'"),
        (["run", "program.py"], "missing input 'a'"),
        (["run", "program.py", "--input", "a=nope.npy"], "cannot read 'nope.npy'"),
        (["run", "program.py", "--input", "a"], "NAME=VALUE"),
        (["run", "program.py", "--input", "a=1", "--input", "a=2"], "given twice"),
        (["run", "program.py:build"], "needs --input size=VALUE"),
        (["run", "program.py:build", "--input", "size=many"], "many"),
        (["run", "program.py:boom"], "on purpose"),
        (["run", "program.py", "--input", "a=a.npy", "--policy", "heftt"], "unknown policy 'heftt'"),
        (["run", "program.py", "--input", "a=a.npy", "--streams", "0"], "streams must be"),
        (["run", "program.py", "--input", "a=a.npy", "--trace", "nowhere/t.json"], "there is no folder 'nowhere'"),
        (["run", "program.py", "--input", "a=a.npy", "--timeout", "-1"], "timeout must be"),
        (["run", "program.py", "--input", "a=a.npy", "--deadline", "-1"], "deadline must be"),
        (["run", "program.py", "--input", "a=a.npy", "--costs", "program.py"], "program.py is no cost model"),
    ],
)
def test_a_mistake_is_one_line(program, capsys, arguments, says):
    if says == "on purpose":
        with pytest.raises(ValueError, match=says):
            main(arguments)
        return
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert says in captured.err and captured.err.count("\n") == 1 and captured.err.startswith("plait: ")


def test_a_failed_run_says_which_item_and_what_else_did_not_run(program, capsys):
    assert main(["run", f"{program}:failing", "--trace", "run.json"]) == 1
    err = capsys.readouterr().err
    assert "item 'bad' failed" in err and "ValueError: on purpose" in err and "not run because of it: after" in err
    assert json.loads(Path("run.json").read_text())["traceEvents"]


def test_show_prints_the_plan_or_a_drawing(program, capsys):
    assert main(["show", program]) == 0
    assert "1 compute items on host" in capsys.readouterr().out
    assert main(["show", program, "--mermaid"]) == 0
    assert capsys.readouterr().out == 'flowchart LR\n  n0["sum"]\n'


def test_devices_lists_the_host(capsys):
    assert main(["devices"]) == 0
    assert capsys.readouterr().out.startswith("host: ")
    assert main(["devices", "--json"]) == 0
    description, _ = json.JSONDecoder().raw_decode(capsys.readouterr().out)
    assert description["usable_cores"] >= 1


def test_devices_lists_every_platform(capsys, monkeypatch):
    gpu = GpuDescription(name="Imaginary", platform="hip", ordinal=0, architecture="gfx90a", multiprocessors=104)
    there = SimpleNamespace(
        name="hip",
        absent=None,
        devices=lambda: (
            SimpleNamespace(name="hip:0", description=gpu),
            SimpleNamespace(name="hip:1", description="odd"),
        ),
    )
    monkeypatch.setattr(devices, "platforms", lambda: (AbsentPlatform("cuda", "nothing\n  here"), there))
    assert main(["devices"]) == 0
    assert capsys.readouterr().out == (
        "cuda: absent: nothing here\n"
        "hip:0: Imaginary, gfx90a, 104 multiprocessors, 1 stream priority level(s)\n"
        "hip:1: odd\n"
    )
    assert main(["devices", "--json"]) == 0
    text = capsys.readouterr().out
    description, end = json.JSONDecoder().raw_decode(text)
    assert description["architecture"] == "gfx90a"
    assert text[end:] == '\n"odd"\n'


def test_bench_and_stress_run(capsys):
    assert main(["bench", "--layers", "5", "--width", "5", "--repeat", "1"]) == 0
    assert "run of a reused plan" in capsys.readouterr().out
    assert main(["stress", "--seconds", "0.01", "--items", "5"]) == 0
    assert "all equal to the serial oracle" in capsys.readouterr().out
