"""Runtimes: the programs that execute networks, one file each."""
