"""Latency on other devices: the files that are timed there, the programs that time them, and how results are read."""
