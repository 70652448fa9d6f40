"""What to do: work items, buffers, hazards, analysis. Start reading at ``graph.py``."""
