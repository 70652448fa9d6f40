"""When it runs: plan, dispatch, runs, traces, reports. Start reading at ``scheduler.py``."""
