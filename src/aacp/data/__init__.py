"""Labelled data in memory, in batches on a device, and how well a network does on it."""
