"""The handwritten digits that come with the package: 1,797 images of 8x8 pixels (DIGITS.md names their source)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from aacp.data.images import Images
from aacp.data.splits import Data, Holdout, split

FILE = Path(__file__).with_name("digits.npz")
TEST = 360  # the last fifth of the images, most of them by writers who do not occur in the rest
MEAN = (0.3054,)  # the mean of the pixels of the training images
STD = (0.3753,)  # the standard deviation of the pixels of the training images


def digits(holdout: Holdout = None, seed: int = 0) -> Data:
    """The digits: the last 360 images are test data, and a tenth of the others (`holdout`) is held out."""
    with np.load(FILE, allow_pickle=False) as file:
        sixteenths = torch.from_numpy(file["pixels"])
        labels = torch.from_numpy(file["labels"]).long()
    pixels = ((sixteenths.int() * 255 + 8) // 16).byte().unsqueeze(1)
    images = Images(pixels, labels, MEAN, STD)
    training = images.subset(torch.arange(len(images) - TEST))
    test = images.subset(torch.arange(len(images))[-TEST:])
    rest, held = split(training.labels, holdout, seed)
    train = replace(training.subset(rest), padding=1)  # shifted digits are digits, mirrored ones are not
    return Data(train, training.subset(held), test, "digits", tuple("0123456789"))
