"""How soft are the outputs of teachers, and how much do they know about mixed images?

Each teacher is given training images that it has seen, plain and with patches of other images as the recipe
finetune-mixed makes them. The table has the mean of its largest probability at several temperatures: a teacher whose
probabilities are nearly equal says little about an image. Of patched images it also has the share of those in which the
largest output belongs to one of the two images.

    python benchmarks/teachers.py --data FOLDER [--teachers resnet56 vgg16 strong_recipes:wide_resnet] [--images 2000]
        [--device cpu] [--out FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

import aacp
import repair_treatments as shared
from aacp.train.mixing import mixed
from aacp.train.recipe import FINETUNE_MIXED
from gpu import ROOT, base

TEMPERATURES = (1, 2, 4)
CLASSES = 10


def main() -> None:
    options = arguments()
    train = aacp.load_data(f"cifar10:{options.data}").train
    torch.manual_seed(0)  # of the patches
    images, labels = next(iter(aacp.Batches.of(train, batch_size=options.images, device=options.device)))
    patched, shares = mixed(images, labels, CLASSES, FINETUNE_MIXED.mixing, FINETUNE_MIXED.mixture)
    rows = []
    for name in options.teachers:
        teacher = aacp.build_model(name).eval().to(options.device)
        aacp.load_weights(teacher, ROOT / base(name.rpartition(":")[2]))
        with torch.no_grad():
            row = {"teacher": name} | {
                kind: largest(teacher(inputs)) for kind, inputs in (("plain", images), ("patched", patched))
            }
            row["one_of_both"] = float((shares.gather(1, teacher(patched).argmax(1, keepdim=True)) > 0).float().mean())
        rows.append(row)
    given = {"images": options.images, "recipe": str(FINETUNE_MIXED)}
    shared.write(options.out, "teachers", shared.circumstances(options.device) | given | {"rows": rows})
    heads = ["teacher", *(f"{kind}, T={t}" for kind in ("plain", "patched") for t in TEMPERATURES), "one of both, %"]
    lines = [
        [
            row["teacher"],
            *(f"{row[kind][str(t)]:.2f}" for kind in ("plain", "patched") for t in TEMPERATURES),
            f"{100 * row['one_of_both']:.1f}",
        ]
        for row in rows
    ]
    print(shared.table(heads, lines))


def largest(outputs: Tensor) -> dict[str, float]:
    """The mean of the largest probability, by temperature."""
    return {str(t): float((outputs / t).softmax(1).amax(1).mean()) for t in TEMPERATURES}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="folder of the CIFAR-10 binaries")
    parser.add_argument("--teachers", nargs="+", default=["resnet56", "vgg16", "strong_recipes:wide_resnet"])
    parser.add_argument("--images", type=int, default=2000, help="training images")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
