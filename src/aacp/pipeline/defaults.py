"""The defaults of a plan, apart from it, so that the command line can show them without importing torch."""

from __future__ import annotations

from typing import Literal

from aacp.channels.space import PRUNING_STEP as PRUNING_STEP

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
