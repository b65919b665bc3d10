"""The program behind `make demo`: train a small ResNet on digits, prune half of its MACs, and print the result.

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


def main() -> None:
    begun = time.perf_counter()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    torch.set_num_threads(1)  # a network this small is not faster with more
    data = aacp.load_data("digits")
    print(data)

    torch.manual_seed(0)
    model = aacp.build_model("digits_resnet")
    base = aacp.fit(model, data.train, DIGITS, folder=folder / "base")
    print(f"trained for {len(base.epochs)} epochs, last loss {base.last.loss:.3f}")

    plan = aacp.Plan(
        evaluations=60,
        recipe=replace(DIGITS.scaled(30), lr=0.03, distillation=0.5),
        calibration_images=1024,
    )
    budget = {"macs": 0.5, "params": 1 / 3}  # the shares to remove; both limits hold in the result
    print("pruning: the search, the fine-tuning and the export take about a minute")
    pruned = aacp.prune(model, data, budget, folder / "pruned", plan=plan, name="digits_resnet")

    print(f"\n{pruned}")
    print(f"{time.perf_counter() - begun:.0f} s in total")


if __name__ == "__main__":
    main()
