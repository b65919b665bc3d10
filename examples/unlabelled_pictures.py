"""Prune a torchvision network with nothing but a folder of pictures: no labels, no training.

python examples/unlabelled_pictures.py PICTURES [FOLDER]    # runs/unlabelled by default; the same command resumes

PICTURES is a folder of JPEG or PNG files. The network loses a third of its MACs, and its kept weights are repaired so
that it computes what it computed before; then it mimics itself as it was for some steps. Needs torchvision.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import aacp


def trained_network() -> nn.Module:
    """MobileNetV2; put your own network with its weights here."""
    torch.manual_seed(0)
    return aacp.build_model("torchvision:mobilenet_v2")


def main(pictures: str | Path, folder: str | Path, evaluations: int = 100, mimic: int = 300) -> aacp.Pruned:
    data = aacp.load_data(f"imagefolder:{pictures}")
    print(data)  # one folder becomes calibration images, a hold-out for the search, and test images
    plan = aacp.Plan(recipe=None, mimic=mimic, evaluations=evaluations, calibration_images=1000, export=False)
    with aacp.show_progress():
        pruned = aacp.prune(
            trained_network(), data, {"macs": 1 / 3}, folder, plan=plan, name="torchvision:mobilenet_v2"
        )
    print(pruned)  # the scores say how like the outputs are to those of the original: 1 is equal
    return pruned


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("Name a folder of pictures: python examples/unlabelled_pictures.py PICTURES [FOLDER]")
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "runs/unlabelled")
