"""Latency of devices that are not here: files to be timed there, the program that times them, and what it found."""
