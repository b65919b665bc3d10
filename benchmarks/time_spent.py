"""What searches and trainings took: tables from the seconds that are recorded in results/; nothing is run.

The first table has whole `aacp prune` commands that began together and shared one GPU. The seconds of a search are
those of a command with a search less those of the command with uniform widths and the same seed, which does everything
else alike. GPU seconds are seconds divided by the number of commands that shared the GPU. The second table has what ran
alone on the GPU. No energy was recorded in any of these runs.

    python benchmarks/time_spent.py
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from statistics import fmean, median
from typing import Any

import repair_treatments as shared

RESULTS = Path(__file__).with_name("results")
# File, network, limits, epochs: all in which searched and uniform commands began together, all of them ended, and their
# seconds were recorded.
COMMANDS = (
    ("prune_cifar10_finetune_mixed_10_epochs", "ResNet56", "MACs -50 %", 10),
    ("prune_cifar10_finetune", "ResNet56", "MACs -50 %", 100),
    ("prune_cifar10_finetune_mixed_70_10_epochs", "ResNet56", "MACs -70 %", 10),
    ("prune_cifar10_finetune_mixed_70", "ResNet56", "MACs -70 %", 100),
    ("search_pays_resnet56_70_10_epochs", "ResNet56", "MACs -70 %", 10),
    ("search_pays_resnet56_70_10_epochs_peers", "ResNet56", "MACs -70 %", 10),
    ("search_pays_resnet56_70_100_epochs", "ResNet56", "MACs -70 %", 100),
    ("search_pays_vgg16_50_10_epochs_base_33", "VGG16", "MACs -50 %, base of 33 epochs", 10),
    ("search_pays_vgg16_50_10_epochs_base_66", "VGG16", "MACs -50 %, base of 66 epochs", 10),
    ("search_pays_vgg16_70_10_epochs", "VGG16", "MACs -70 %", 10),
    ("search_pays_vgg16_70_90_10_epochs", "VGG16", "MACs -70 %, parameters -90 %", 10),
    ("search_pays_mobilenet_v2_50_10_epochs", "MobileNetV2", "MACs -50 %", 10),
)
ARMS = {
    "uniform": "uniform",
    "search": "searched",
    "default": "searched",
    "repaired": "searched, repaired",
    "torch-pruning": "Torch-Pruning, one ratio",
    "torch-pruning-global": "Torch-Pruning, global",
    "modelopt": "ModelOpt FastNAS",
}
ALONE_HEADS = ["alone on the H200", "amount", "seconds", "raw output"]
HEADS = [
    "network, limits", "spent on", "epochs", "commands at once", "evaluations", "search, seconds by seed",
    "whole command, seconds", "search, GPU seconds", "whole command, GPU seconds",
]  # fmt: skip


def raw(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def commands_of(file: str, network: str, limits: str, epochs: int) -> list[list[str]]:
    """The rows of a file: what its commands took, for each arm that is timed."""
    result = raw(file)
    found: dict[str, dict[int, float]] = {}
    for row in result["rows"]:
        if row["seconds"] is not None:
            found.setdefault(row.get("arm", row.get("method")), {})[row["seed"]] = row["seconds"]
    at_once = min(int(re.findall(r"at-once (\d+)", result["command"])[0]), len(result["rows"]))
    lines = []
    for arm, name in ARMS.items():
        if arm not in found:
            continue
        searched = "-", "-", "-"
        if arm in ("search", "default", "repaired"):
            more = [seconds - found["uniform"][seed] for seed, seconds in found[arm].items()]
            evaluations = result.get("evaluations", 400)  # of prune_cifar10.py, which does not record them
            searched = str(evaluations), ", ".join(f"{each:.0f}" for each in more), f"{median(more) / at_once:.1f}"
        whole = fmean(found[arm].values())
        cells = [str(epochs), str(at_once), *searched[:2], f"{whole:.0f}", searched[2], f"{whole / at_once:.0f}"]
        lines.append([f"{network}, {limits}", name, *cells])
    return lines


def alone() -> list[list[str]]:
    """The rows of what ran alone; seconds of 100 epochs are those of single epochs times 100."""
    lines = []
    for file, what in (("obs", "accuracy, order obs"), ("mimic", "likeness on 1,000 images")):
        for run in sorted(raw(f"repair_resnet56_{file}")["product"], key=lambda run: float(run["rate"])):
            name = f"search of ResNet56 at -{run['rate']:.0%}, repaired estimate, {what}".replace("%", " %")
            lines.append([name, "200 evaluations", f"{run['stages']['search']:.1f}", f"`repair_resnet56_{file}.json`"])
    rates = raw("worker_throughput")["rows"][0]
    seconds = rates["start_seconds"] + 400 / rates["per_second"]
    lines.append(["search of ResNet56 at -50 %", "400 evaluations", f"{seconds:.1f}", "`worker_throughput.json`"])
    for network, file in (("ResNet56", "train_speed_streams"), ("VGG16", "train_speed")):
        (epochs,) = [
            row["seconds"] for row in raw(file)["rows"] if (row["network"], row["way"]) == (network.lower(), "captured")
        ]
        lines.append([f"training of {network} at -50 %", "100 epochs", f"{100 * median(epochs):.0f}", f"`{file}.json`"])
    return lines


def main() -> None:
    argparse.ArgumentParser().parse_args()
    print(shared.table(HEADS, [line for given in COMMANDS for line in commands_of(*given)]))
    print(shared.table(ALONE_HEADS, alone()))


if __name__ == "__main__":
    main()
