"""The host platform: CPU streams served by a few worker threads. Start reading at ``platform.py``."""
