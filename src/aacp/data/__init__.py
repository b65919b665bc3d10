"""Data with or without labels, batches of them on a device, and functions that score a network."""
