"""Recipes that may be stronger than finetune-mixed, and a teacher that is stronger than the unpruned network.

short_trainings.py compares them; the plans rates, taught and bases of gpu.py have the commands:

    python benchmarks/short_trainings.py ... --recipe finetune-mixed strong_recipes:PATIENT
        --teacher strong_recipes:wide_resnet --teacher-weights FILE
    aacp train strong_recipes:wide_resnet --data cifar10:FOLDER --recipe strong_recipes:TEACHER
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from aacp.train.recipe import BASE, FINETUNE_MIXED
from aacp.zoo.networks import ResNet

TEACHER = replace(BASE, mixing=1.0, mixture="patches")  # the teacher itself is trained with it
PATIENT = replace(FINETUNE_MIXED, distillation=0.9)  # 0.9 of the loss from the teacher instead of 0.5
BLENDED = replace(PATIENT, mixture="blends")  # blends of images instead of patches
COOL = replace(PATIENT, temperature=2.0)  # instead of 4; for a teacher whose outputs are soft, as teachers.py shows
COLD = replace(PATIENT, temperature=1.0)
DECAYED = replace(FINETUNE_MIXED, weight_decay=5e-3)  # the weight decay of CORING
AVERAGED = replace(FINETUNE_MIXED, average=0.999)  # the result is a moving average of the weights


def wide_resnet() -> nn.Module:
    """ResNet20 for CIFAR-10 with four times its widths: 4.3 M parameters."""
    return ResNet(blocks=3, widths=(64, 128, 256))
