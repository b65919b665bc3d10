"""Measurements behind what is claimed about the search, and problems with known answers."""
