"""``plait simulate``: what it prints and writes, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from plait.cli.main import main
from plait.scheduler.policies.cost_model import CostModel

PROGRAM = """
import plait

def nothing(*values):
    raise AssertionError("a dry run calls nothing")

graph = plait.Graph("demo")
x = graph.input("x", (1024, 1024), "float32")
with graph.defaults(device="cuda", nbytes=1 << 22):
    ends = [graph.options(flops=1e11).call(nothing, graph.options(flops=5e10).call(nothing, x)) for _ in range(8)]
    graph.output("y", graph.call(nothing, *ends))
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_it_says_how_it_went(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "out.json"
    assert main(["simulate", program, "--machine", "8xh100", "--trace", str(trace)]) == 0
    shown = capsys.readouterr().out
    for words in ("17 items", "makespan", "of the bound", "over pcie: ", "over nvlink: ", "cuda:7", "busy", "peak"):
        assert words in shown
    again = tmp_path / "again.json"
    assert main(["simulate", program, "--machine", "8xh100", "--trace", str(again)]) == 0
    assert trace.read_bytes() == again.read_bytes()


def test_policies_side_by_side(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", program, "--machine", "8xh100", "--compare"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["policy", "makespan"]
    assert {"fifo", "critical-path"} <= {line.split()[0] for line in lines[1:]}


def test_costs_come_from_a_trace_or_from_a_cost_file(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learnt, trace = tmp_path / "costs.json", tmp_path / "trace.json"
    model = CostModel()
    model.observe("nothing", "cuda", 1 << 22, 2.0)
    model.save(learnt)
    assert main(["simulate", program, "--machine", "8xh100", "--costs", str(learnt), "--trace", str(trace)]) == 0
    told = capsys.readouterr().out
    assert main(["simulate", program, "--machine", "8xh100", "--costs", str(trace)]) == 0
    again = capsys.readouterr().out
    # Two items of two seconds in a row, and one that touches ten times what was learnt and takes as long for each.
    assert "makespan 40 s" in told and "makespan 40 s" in again


def test_what_if(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", program, "--machine", "8xh100"])
    usual = capsys.readouterr().out
    assert main(["simulate", program, "--machine", "8xh100", "--what-if", "compute=0.1"]) == 0
    assert capsys.readouterr().out != usual


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--machine", "9xh100"], "ships no machine '9xh100'"),
        (["--machine", "8xh100", "--what-if", "luck=2"], "'luck' is none of link"),
        (["--machine", "8xh100", "--what-if", "link=fast"], "'fast' is not a number"),
        (["--machine", "8xh100", "--policy", "best-of-all"], "unknown policy"),
        (["--machine", "8xh100", "--trace", "/no/such/folder/out.json"], "no folder"),
        (["--machine", "8xh100", "--policy", "best-of-all", "--compare"], "unknown policy"),
        (["--machine", "8xh100", "--trace", "/"], "that is a folder"),
        (["--machine", "8xh100", "--trace", "out.json", "--compare"], "leave out --trace"),
        (["--machine", "8xh100", "--costs", "/no/such/trace.json"], "trace.json"),
    ],
)
def test_it_says_what_is_wrong(
    program: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", program, *arguments]) == 1
    assert words in capsys.readouterr().err
