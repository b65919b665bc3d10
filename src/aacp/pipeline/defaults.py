"""Defaults that the command line can show without importing torch: those of a plan, and of a measurement."""

from __future__ import annotations

from typing import Literal

from aacp.channels.space import PRUNING_STEP as PRUNING_STEP
from aacp.latency.defaults import SECONDS_PER_STRUCTURE as SECONDS_PER_STRUCTURE
from aacp.latency.defaults import STRUCTURES as STRUCTURES

METHOD = "default"
IMPORTANCE = "l1"
RECONSTRUCTION = None  # of networks that are trained after pruning
UNTRAINED_RECONSTRUCTION: Literal["repair"] = "repair"  # of networks that are delivered without training
CALIBRATION_IMAGES = 4096
SCOPE = "all"
SHRINK = "macs"
SEED = 0
PROPOSALS_FOR_WORKERS = 8  # a constant, so that the result does not depend on the number of workers
RUNGS = (0.03, 0.1, 0.3)  # the lengths of the trainings that compare finalists, as shares of the recipe's epochs
