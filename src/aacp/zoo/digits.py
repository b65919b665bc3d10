"""The handwritten digits that come with the package: 1,797 pictures of 8x8 (see DIGITS.md for whose they are)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from aacp.data.images import Images
from aacp.data.splits import Data, split

FILE = Path(__file__).with_name("digits.npz")
TEST = 360  # the last fifth: pictures of one writer follow each other, so most of these hands are new
MEAN, STD = (0.3054,), (0.3753,)  # of the training pictures


def digits(holdout: float = 0.1, seed: int = 0) -> Data:
    """The digits: the last 360 pictures are for testing, `holdout` of the others for the search."""
    with np.load(FILE, allow_pickle=False) as file:
        sixteenths, labels = torch.from_numpy(file["pixels"]), torch.from_numpy(file["labels"]).long()
    pixels = ((sixteenths.int() * 255 + 8) // 16).byte().unsqueeze(1)
    images = Images(pixels, labels, MEAN, STD)
    training, test = images.subset(torch.arange(len(images) - TEST)), images.subset(torch.arange(len(images))[-TEST:])
    rest, held = split(training.labels, holdout, seed)
    train = replace(training.subset(rest), padding=1)  # a mirrored digit is none, a shifted one is
    return Data(train, training.subset(held), test, "digits", tuple("0123456789"))
