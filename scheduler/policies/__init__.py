"""What picks the device and the order of items, as pure functions on flat arrays. Start reading at ``problem.py``."""

from plait.scheduler.policies.find import DEFAULT, POLICIES, find
from plait.scheduler.policies.online import Queues, online
from plait.scheduler.policies.policy import Policy
from plait.scheduler.policies.problem import Problem, Schedule
from plait.scheduler.policies.rank import ordered
from plait.scheduler.policies.simulate import simulate

__all__ = ["DEFAULT", "POLICIES", "Policy", "Problem", "Queues", "Schedule", "find", "online", "ordered", "simulate"]
