"""The command line: one file per command; start reading at ``main.py``."""
