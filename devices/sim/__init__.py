"""The simulated platform: machines as data, devices in virtual time. Start reading at ``model.py``."""

from plait.devices.sim.device import SimDevice
from plait.devices.sim.faults import FailedItem, Fault, LateCompletion, LostDevice, PlantedError, SlowDevice
from plait.devices.sim.load import machine, shipped
from plait.devices.sim.model import DeviceModel, HostModel, LinkModel, Machine
from plait.devices.sim.queue import COMPUTE, IN, NOTHING, OUT, PEER, Op, SimQueue
from plait.devices.sim.simulation import SimHost, Simulation

__all__ = [
    "COMPUTE",
    "IN",
    "NOTHING",
    "OUT",
    "PEER",
    "DeviceModel",
    "FailedItem",
    "Fault",
    "HostModel",
    "LateCompletion",
    "LinkModel",
    "LostDevice",
    "Machine",
    "Op",
    "PlantedError",
    "SimDevice",
    "SimHost",
    "SimQueue",
    "Simulation",
    "SlowDevice",
    "machine",
    "shipped",
]
