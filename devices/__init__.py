"""Where it runs: platforms, devices, streams, events, memory. Start reading at ``protocol.py``."""
