"""Runs without training, in a module that other processes can import too."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import aacp
from aacp.train import mimic as mimicking
from aacp.train.checkpoint import Checkpoint
from glue.subjects import data

PLAN = aacp.Plan(
    pruning_step=4, method="random", evaluations=3, recipe=None, importance="bn", calibration_images=100, export=False,
    seed=3,
)  # fmt: skip
BUDGET = {"macs": 0.5}


def pruned(model: nn.Module, folder: Path, **changes: Any) -> aacp.Pruned:
    return aacp.prune(model, data(), BUDGET, folder, plan=replace(PLAN, **changes), device="cpu")


def mimic_in_process(model: nn.Module, folder: Path, is_killed: bool) -> None:
    """A whole run, which may end itself, as if killed, as soon as its second state is on disk."""
    torch.set_num_threads(1)
    write = Checkpoint.write

    def write_and_die(self: Checkpoint, done: int) -> None:
        write(self, done)
        if done == 4 and is_killed:
            os.kill(os.getpid(), signal.SIGKILL)

    mimicking.SAVE_EVERY = 2
    Checkpoint.write = write_and_die
    pruned(model, folder, mimic=6)
