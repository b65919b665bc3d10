"""What each of two connected processes does in the tests of parallel training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import aacp
from pipeline import tiny_run

INPUTS = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(16) % tiny_run.CLASSES
HALVES = (slice(0, 8), slice(8, 16))
LR = 0.1


def found(**others: Any) -> aacp.Found:
    plan = aacp.Plan(evaluations=3, calibration_images=16)
    return aacp.find(tiny_run.network(), INPUTS, {"macs": 0.4}, plan=plan, **others)


def train_together(fabric: Fabric, folder: Path) -> str:
    """Process 0 searches and saves, both load and train, and process 0 saves what they have trained.

    Returns what is said to process 1, which tries to search too.
    """
    said = ""
    try:
        mine = found(device="cpu")
        mine.save(mine.cut(), folder / "cut.safetensors")
    except aacp.InvalidOption as error:
        said = str(error)
    distributed.barrier()
    parallel = DistributedDataParallel(aacp.load(folder / "cut.safetensors", into=tiny_run.network()).train())
    half = HALVES[fabric.global_rank]
    nn.functional.cross_entropy(parallel(INPUTS[half]), LABELS[half]).backward()
    torch.optim.SGD(parallel.parameters(), lr=LR).step()
    if fabric.is_global_zero:
        mine.save(parallel, folder / "trained.safetensors")
    return said


def search_on(fabric: Fabric) -> dict[str, Any]:
    """Both processes search on the fabric; returns what each gets."""
    mine = found(fabric=fabric)
    return {
        "graph": mine.graph.to_json(),
        "choice": mine.choice.to_json(),
        "history": [candidate.to_json() for candidate in mine.history],
        "weights": {name: value.tolist() for name, value in mine.cut().state_dict().items()},
    }


def search_what_fails(fabric: Fabric) -> None:
    """The budget cannot be met, which process 0 finds out while process 1 waits."""
    aacp.find(tiny_run.network(), INPUTS, {"macs": 0.9999}, plan=aacp.Plan(evaluations=3), fabric=fabric)
