"""The networks of our version of Table 2: MobileNetV2 and ResNet18 for the ten classes of Imagenette.

Imagenette is a folder of 13,394 pictures in ten classes of ImageNet. MobileNetV2 has ImageNet's weights and keeps the
ten outputs of its classifier that belong to these classes, in the order of their folders, so that it needs no training
before it is pruned. It was trained on ImageNet, of which most of these pictures are a part, the test pictures too: its
accuracy before pruning is not that on new pictures. What pruned networks lose is compared among themselves. ResNet18 is
trained on Imagenette alone.

    python benchmarks/imagenette.py WEIGHTS OUT

WEIGHTS is torchvision's file mobilenet_v2-b0353104.pth, OUT the file of weights with ten outputs. The plans imagenette
and imagenette-resnet18 of gpu.py prune the networks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import aacp

# The folders of Imagenette, and the outputs of ImageNet's networks that belong to them.
CLASSES = {
    "n01440764": 0,  # tench
    "n02102040": 217,  # English springer
    "n02979186": 482,  # cassette player
    "n03000684": 491,  # chain saw
    "n03028079": 497,  # church
    "n03394916": 566,  # French horn
    "n03417042": 569,  # garbage truck
    "n03425413": 571,  # gas pump
    "n03445777": 574,  # golf ball
    "n03888257": 701,  # parachute
}
HEAD = "classifier.1"


def mobilenet_v2() -> nn.Module:
    """torchvision's MobileNetV2 with an output for each class of Imagenette."""
    network = aacp.build_model("torchvision:mobilenet_v2")
    inputs: int = network.get_submodule(HEAD).in_features  # type: ignore[assignment]
    network.set_submodule(HEAD, nn.Linear(inputs, len(CLASSES)))
    return network


def resnet18() -> nn.Module:
    """torchvision's ResNet18 with an output for each class of Imagenette."""
    network = aacp.build_model("torchvision:resnet18")
    network.fc = nn.Linear(network.fc.in_features, len(CLASSES))  # type: ignore[union-attr, arg-type]
    return network


def ten_outputs(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of MobileNetV2 for ImageNet, with the rows of Imagenette's classes alone in the classifier."""
    rows = torch.tensor(list(CLASSES.values()))
    heads = {f"{HEAD}.weight", f"{HEAD}.bias"}
    return {name: value[rows].clone() if name in heads else value for name, value in weights.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("weights", type=Path, help="torchvision's file of weights")
    parser.add_argument("out", type=Path, help="the file to write, .safetensors")
    options = parser.parse_args()
    weights = ten_outputs(torch.load(options.weights, map_location="cpu", weights_only=True))
    mobilenet_v2().load_state_dict(weights)  # raises an error if they do not fit
    save_file(weights, options.out)
    print(f"{options.out}: {len(weights)} tensors, {len(CLASSES)} outputs")


if __name__ == "__main__":
    main()
