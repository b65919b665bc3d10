"""Labelled data in memory, batches of them on a device, and functions that score a network."""
