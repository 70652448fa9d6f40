"""What a run tells: traces, what bounds it, why it waits, metrics. Start reading at ``collect.py``."""
