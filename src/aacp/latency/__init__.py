"""Latency: measured times of networks on this machine, and tables that predict them for other structures."""
