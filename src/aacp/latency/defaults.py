"""The defaults of a measurement, apart from it, so that the command line can show them without importing torch."""

from __future__ import annotations

STRUCTURES = 48  # how many structures are measured to fit a table
SECONDS_PER_STRUCTURE = 1.0  # how long each of them is measured, about
