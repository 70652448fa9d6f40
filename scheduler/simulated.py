"""What a simulated run says of the machine: time against bounds, how busy each device was, bytes moved and held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from plait.devices.sim import Simulation
from plait.graph.analysis import critical_path
from plait.scheduler.estimates import Estimates
from plait.scheduler.expand import HOST, Transfer
from plait.scheduler.kinds import COMPUTE, COPY, IN, LAUNCH, OUT
from plait.scheduler.machine_costs import Costs
from plait.scheduler.report import hidden as copies_hidden
from plait.scheduler.seeing.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from plait.scheduler.plan import Plan
    from plait.scheduler.run import Run


@dataclass(frozen=True)
class DeviceUse:
    """One device in a simulated run: ``busy`` is the part of its compute time in use, ``peak_bytes`` its most."""

    name: str
    items: int
    busy: float
    bytes_in: int
    bytes_out: int
    peak_bytes: int


@dataclass(frozen=True)
class SimulatedReport:
    """Figures of one simulated run; seconds and bytes. ``str(report)`` is a short table.

    No schedule of these items on these devices is shorter than ``bound_s``: the longest path, each transfer alone on
    its link, or the work of the busiest engine. ``copies_hidden`` is the part of copy time in which some item computed.
    """

    machine: str
    policy: str
    items: int
    transfers: int
    makespan_s: float
    path_bound_s: float
    work_bound_s: float
    busiest: str
    copies_hidden: float | None
    devices: tuple[DeviceUse, ...]
    links: tuple[tuple[str, int], ...]

    @property
    def bound_s(self) -> float:
        return max(self.path_bound_s, self.work_bound_s)

    @property
    def over_bound(self) -> float:
        """Makespan over bound; 1 is the best there is."""
        return self.makespan_s / self.bound_s if self.bound_s else 1.0

    def __str__(self) -> str:
        lines = [
            f"{self.items} items and {self.transfers} transfers on {self.machine}, policy {self.policy}",
            f"  makespan {format_seconds(self.makespan_s)}, {self.over_bound:.3f} of the bound "
            f"{format_seconds(self.bound_s)} (path {format_seconds(self.path_bound_s)}, "
            f"{self.busiest} {format_seconds(self.work_bound_s)})",
        ]
        if self.copies_hidden is not None:
            lines.append(f"  copies behind compute: {self.copies_hidden:.0%}")
        lines += [f"  over {name}: {format_bytes(nbytes)}" for name, nbytes in self.links]
        lines += [
            f"  {use.name:<10} {use.items:7} items, busy {use.busy:6.1%}, in {format_bytes(use.bytes_in):>9}, "
            f"out {format_bytes(use.bytes_out):>9}, peak {format_bytes(use.peak_bytes):>9}"
            for use in self.devices
        ]
        return "\n".join(lines)


def simulated_report(run: Run, simulation: Simulation) -> SimulatedReport:
    """Figures of a finished, traced run on a simulated machine."""
    plan, trace, machine = run.plan, run.trace, simulation.machine
    sizes = run._state.sizes
    took = durations(plan, simulation, sizes)
    path, _ = critical_path(plan.waits, took) if len(took) else (0.0, [])
    makespan = max(1, trace.makespan_ns) / 1e9
    kinds = np.array(plan.kinds, dtype=np.int64)
    work, busiest = _work(plan, simulation, took, sizes)
    moved: dict[tuple[int, str], int] = {}
    transfers = 0
    for position in np.flatnonzero(kinds >= 3).tolist():
        item = plan.item(position)
        if not isinstance(item, Transfer) or item.source is None:
            continue
        transfers += 1
        nbytes = sizes[item.target_slot] or sizes[item.source_slot]
        for place, way in ((item.target, "in"), (item.source, "out")):
            moved[place, way] = moved.get((place, way), 0) + nbytes
    records = trace.records
    place_of = kinds[_positions(plan)[records["item"]]] // 3
    compute = records["kind"] != 1
    spans = (records["end_ns"] - records["start_ns"]) / 1e9
    uses = []
    for place, device in enumerate(simulation.devices):
        mine = (place_of == place) & compute
        slots = machine.host.workers if place == HOST else device.model.streams
        uses.append(
            DeviceUse(
                name=device.name,
                items=int(mine.sum()),
                busy=float(spans[mine].sum()) / makespan / slots,
                bytes_in=moved.get((place, "in"), 0),
                bytes_out=moved.get((place, "out"), 0),
                peak_bytes=device.memory.peak,
            )
        )
    over: dict[str, int] = {}
    for port in simulation.ports.values():
        over[port.name] = over.get(port.name, 0) + port.moved
    return SimulatedReport(
        machine=machine.name,
        policy=plan.policy,
        items=len(plan.work) - transfers,
        transfers=transfers,
        makespan_s=trace.makespan_ns / 1e9,
        path_bound_s=float(path),
        work_bound_s=work,
        busiest=busiest,
        copies_hidden=copies_hidden(records),
        devices=tuple(uses),
        links=tuple(over.items()),
    )


def durations(plan: Plan, simulation: Simulation, sizes: list[int]) -> Any:
    """Seconds by position: items as estimated, each transfer alone on its link; float64, shape (items,)."""
    estimates = Estimates(plan, Costs(simulation.machine), plan.template)
    took = np.array(estimates.took_ns, dtype=np.float64) / 1e9
    for position, kind in enumerate(plan.kinds):
        item = plan.item(position) if kind >= 3 else None
        if isinstance(item, Transfer) and item.source is not None:
            latency_ns, ports = simulation.route(plan.places[item.source], plan.places[item.target])
            nbytes = sizes[item.target_slot] or sizes[item.source_slot]
            took[position] = (latency_ns + max((nbytes / port.rate for port in ports), default=0.0)) / 1e9
    return took


def _peers(plan: Plan, kinds: Any) -> Any:
    """Whether the item at each position is a copy from one device to another: bool, shape (items,)."""
    peers = np.zeros(len(kinds), dtype=bool)
    for position in np.flatnonzero((kinds >= 3) & (kinds % 3 == IN)).tolist():
        item = plan.item(position)
        peers[position] = isinstance(item, Transfer) and item.source not in (None, HOST)
    return peers


def _work(plan: Plan, simulation: Simulation, took: Any, sizes: list[int]) -> tuple[float, str]:
    """The seconds that the busiest engine or link needs for its work, and its name."""
    machine, kinds = simulation.machine, np.array(plan.kinds, dtype=np.int64)
    peers = _peers(plan, kinds)
    compute, copy = plan.streams
    found = [
        (float(took[kinds == COMPUTE].sum()) / min(machine.host.workers, compute), "host/compute"),
        (float(took[kinds == COPY].sum()) / copy, "host/copy"),
    ]
    for place, device in enumerate(machine.devices, 1):
        copies = kinds == 3 * place + IN
        for mine, engines, word in (
            (kinds == 3 * place + LAUNCH, device.streams, "compute"),
            (copies & ~peers, device.copies_in, "in"),
            (copies & peers, device.copies_peer, "peer"),
            (kinds == 3 * place + OUT, device.copies_out, "out"),
        ):
            found.append((float(took[mine].sum()) / engines, f"{device.name}/{word}"))
    return max(found + _link_work(plan, simulation, kinds, sizes), key=lambda each: each[0])


def _link_work(plan: Plan, simulation: Simulation, kinds: Any, sizes: list[int]) -> list[tuple[float, str]]:
    """Per link, or the end of one, the seconds that its bytes need, and its name."""
    seconds: dict[int, float] = {}
    names: dict[int, str] = {}
    for position in np.flatnonzero(kinds >= 3).tolist():
        item = plan.item(position)
        if not isinstance(item, Transfer) or item.source is None:
            continue
        source, target = plan.places[item.source], plan.places[item.target]
        nbytes = sizes[item.target_slot] or sizes[item.source_slot]
        for port in simulation.route(source, target)[1]:
            seconds[id(port)] = seconds.get(id(port), 0.0) + nbytes / port.rate / 1e9
            names[id(port)] = f"{port.name} at {source if source != 'host' else target}"
    return [(taken, names[port]) for port, taken in seconds.items()]


def _positions(plan: Plan) -> Any:
    positions = np.empty(len(plan.order), dtype=np.int64)
    positions[plan.order] = np.arange(len(plan.order))
    return positions
