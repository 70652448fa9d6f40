"""Machines as data: what plait ships, what a file may say, how errors name file and field; what links share."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import plait
import pytest
from plait.devices.sim import Simulation, shipped
from plait.devices.sim.clock import VirtualTime
from plait.devices.sim.links import Flow, Port

SMALL: dict[str, Any] = {
    "name": "small",
    "host": {"workers": 2},
    "devices": [{"kind": "cuda", "count": 2, "memory_bytes": 1000}],
    "links": [{"name": "bus", "between": ["host", "cuda"], "bytes_per_s": 1e9}],
}


def written(folder: Path, change: Callable[[dict[str, Any]], object] = lambda data: None) -> str:
    data = json.loads(json.dumps(SMALL))
    change(data)
    path = folder / "small.json"
    path.write_text(json.dumps(data))
    return str(path)


@pytest.mark.parametrize("name", shipped())
def test_shipped_machines_say_where_each_figure_is_from(name: str) -> None:
    machine = plait.machine(name)
    assert machine.name == name
    text = resources.files("plait.devices.sim").joinpath("machines", f"{name}.json").read_text("utf-8")
    data = json.loads(text)
    for part in (data["host"], *data["devices"], *data["links"]):
        figures = {key for key, value in part.items() if isinstance(value, int | float) or key == "sharing"}
        assert figures == set(part["sources"]), "a source for each figure, and no other"


def test_a_file_is_read(tmp_path: Path) -> None:
    machine = plait.machine(written(tmp_path), dry=True, seed=3)
    assert [device.name for device in machine.devices] == ["cuda:0", "cuda:1"]
    assert (machine.host.workers, machine.devices[1].memory_bytes, machine.dry, machine.seed) == (2, 1000, True, 3)
    assert plait.machine(tmp_path / "small.json") == plait.machine(str(tmp_path / "small.json"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.pop("name"), "name: is missing"),
        (lambda data: data["host"].update(workers=0), "host.workers: must be a whole number of at least 1"),
        (lambda data: data["host"].update(worker=2), r"host.worker: is not a field here.*did you mean 'workers'"),
        (lambda data: data["devices"][0].update(memory_bytes=1.5), r"devices\[0\].memory_bytes: .* not 1.5"),
        (lambda data: data["devices"][0].update(kind="host"), r"devices\[0\].kind"),
        (lambda data: data["devices"][0].update(flops_per_s=-1), r"devices\[0\].flops_per_s: must be a positive"),
        (lambda data: data["devices"][0].update(launch_s="1"), r"devices\[0\].launch_s: must be a number of seconds"),
        (lambda data: data["devices"][0].update(count=10**9), "devices: .* more than 4096"),
        (lambda data: data["links"][0].update(between=["host", "hip"]), r"links\[0\].between: 'hip' is neither"),
        (lambda data: data["links"][0].update(between="host"), r"links\[0\].between: must be two names"),
        (lambda data: data["links"][0].update(sharing="some"), r"links\[0\].sharing: must be one of 'pair'"),
        (lambda data: data["links"][0].pop("bytes_per_s"), r"links\[0\].bytes_per_s: is missing"),
        (lambda data: data.update(links=[]), "links: nothing joins 'host' to 'cuda:0'"),
        (lambda data: data.update(devices={}), "devices: must be a list"),
        (lambda data: data.update(host=[]), "host: must be an object"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    path = written(tmp_path, change)
    with pytest.raises(plait.DeviceError, match=words) as caught:
        plait.machine(path)
    assert path in str(caught.value)


def test_what_is_no_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(plait.DeviceError, match="did you mean '8xh100'"):
        plait.machine("8xh10")
    with pytest.raises(plait.DeviceError, match="cannot read"):
        plait.machine(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(plait.DeviceError, match="not JSON"):
        plait.machine(tmp_path / "bad.json")
    with pytest.raises(plait.DeviceError, match="noise"):
        plait.machine("8xh100", noise=2)


def test_what_if() -> None:
    machine = plait.machine("8xh100")
    half = machine.scaled(link=0.5, memory=2, latency=10, compute=3)
    assert half.links[0].bytes_per_s == machine.links[0].bytes_per_s / 2
    assert half.links[0].latency_s == machine.links[0].latency_s * 10
    assert half.devices[0].memory_bytes == 2 * (machine.devices[0].memory_bytes or 0)
    assert half.speed == 3


def finished(ports: list[list[Port]], sizes: list[int], begins: list[int]) -> list[int]:
    """When flows through given ports end, in nanoseconds after the first could begin."""
    time, ends = VirtualTime(), [0] * len(sizes)
    zero = time.now_ns
    for number, (through, nbytes, begin) in enumerate(zip(ports, sizes, begins, strict=True)):

        def done(number: int = number) -> None:
            ends[number] = time.now_ns - zero

        time.at(zero + begin, Flow(through, nbytes, done).start, time)
    while time.live:
        time.step()
    return ends


def test_flows_share_a_port_equally() -> None:
    bus = Port("bus", 2.0)
    assert finished([[bus]], [1000], [0]) == [500]
    assert finished([[bus], [bus]], [1000, 1000], [0, 0]) == [1000, 1000]
    # Alone for 250 ns, then side by side until the first is through, then alone again.
    assert finished([[bus], [bus]], [1000, 1000], [0, 250]) == [750, 1000]
    assert bus.moved == 5000
    assert bus.flows == []


def test_a_flow_is_as_slow_as_its_slowest_port() -> None:
    fast, slow = Port("fast", 4.0), Port("slow", 1.0)
    assert finished([[fast, slow], [fast]], [1000, 2000], [0, 0]) == [1000, 1000]


def test_who_shares_a_link() -> None:
    base = plait.machine("8xh100")
    simulation = Simulation(base)
    _, one = simulation.route("cuda:0", "cuda:1")
    _, other = simulation.route("cuda:0", "cuda:2")
    _, back = simulation.route("cuda:2", "cuda:0")
    assert set(one) & set(other), "both leave cuda:0"
    assert not set(other) & set(back), "each direction for itself"
    assert not set(simulation.route("host", "cuda:0")[1]) & set(simulation.route("host", "cuda:1")[1])


def test_a_device_says_how_it_is_joined(tmp_path: Path) -> None:
    first = Simulation(plait.machine("8xh100")).sim_devices[0]
    assert first.link_to("host") == (64e9, 5e-6)
    assert first.link_to("cuda:3") == (450e9, 3e-6)
    assert Simulation(plait.machine(written(tmp_path))).sim_devices[0].link_to("cuda:1") is None


def test_devices_without_a_link_meet_through_the_host(tmp_path: Path) -> None:
    simulation = Simulation(plait.machine(written(tmp_path)))
    _, ports = simulation.route("cuda:0", "cuda:1")
    assert set(ports) == {*simulation.route("cuda:0", "host")[1], *simulation.route("host", "cuda:1")[1]}
