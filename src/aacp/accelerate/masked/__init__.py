"""Masked execution: the full-width network with absent channels set to zero, in shapes that never change."""
