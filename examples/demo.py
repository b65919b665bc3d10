"""The program behind `make demo`: train a ResNet on digits, prune half of its MACs, and print the result.

python examples/demo.py [FOLDER]    # runs/demo by default; the same command resumes an interrupted run
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

import aacp
from aacp.train.recipe import DIGITS
from aacp.zoo.networks import ResNet

BUDGET = {"macs": 0.5, "params": 1 / 3}  # the shares to remove; both limits hold in the result
PLAN = aacp.Plan(
    evaluations=60,
    pruning_step=8,  # widths in multiples of eight channels, which processors compute fastest
    recipe=replace(DIGITS.scaled(15), lr=0.03, distillation=0.5),
    calibration_images=512,
    deployment=aacp.Deployment(batch=16, threads=1),  # where both networks are timed
)


def network() -> torch.nn.Module:
    """A ResNet that is wide enough to take less time with fewer channels."""
    torch.manual_seed(0)
    return ResNet(1, widths=(48, 96, 192), input_size=(1, 8, 8))


def main() -> None:
    begun = time.perf_counter()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    torch.set_num_threads(1)  # a network this small is not faster with more
    data = aacp.load_data("digits")
    print(data)

    model = network()
    base = aacp.fit(model, data.train, DIGITS.scaled(15), folder=folder / "base")
    print(f"trained for {len(base.epochs)} epochs, last loss {base.last.loss:.3f}")

    print("pruning: the search, the fine-tuning and the export take one to three minutes")
    pruned = aacp.prune(model, data, BUDGET, folder / "pruned", plan=PLAN)

    print(f"\n{pruned}")
    print(f"{time.perf_counter() - begun:.0f} s in total")


if __name__ == "__main__":
    main()
