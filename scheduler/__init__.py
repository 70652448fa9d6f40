"""When it runs: plan, dispatch, runs, traces, reports. Start reading at ``scheduler.py``."""

from plait.scheduler.compile import compile_plan
from plait.scheduler.opening import default_streams, open_scheduler
from plait.scheduler.plan import Plan
from plait.scheduler.report import Report
from plait.scheduler.run import Outputs, Progress, Run
from plait.scheduler.scheduler import Scheduler
from plait.scheduler.seeing.compare import Comparison, compare
from plait.scheduler.timeline import timeline
from plait.scheduler.trace import Trace

__all__ = [
    "Comparison",
    "Outputs",
    "Plan",
    "Progress",
    "Report",
    "Run",
    "Scheduler",
    "Trace",
    "compare",
    "compile_plan",
    "default_streams",
    "open_scheduler",
    "timeline",
]
