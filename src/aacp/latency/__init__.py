"""Latency: what the structures of a network take on this machine, measured."""
