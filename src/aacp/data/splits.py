"""Data: one data set in its three parts, and how the hold-out is taken from the training pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import Dataset

from aacp.errors import InvalidOption

Source: TypeAlias = Dataset[Any] | Iterable[Any]  # a data set, or a loader


@dataclass(frozen=True, eq=False)
class Data:
    """What to train on, what a search may look at, and what only the final network is judged by."""

    name: str
    train: Source
    holdout: Source  # Paper: "validation" is not defined; ours comes from the training data, never from the test set
    test: Source
    classes: tuple[str, ...]  # names by label; empty if the data does not tell

    def __str__(self) -> str:
        parts = {"to train on": self.train, "held out": self.holdout, "to test on": self.test}
        return f"{self.name}: " + ", ".join(f"{_size(part)} {what}" for what, part in parts.items())


def _size(part: Source) -> str:
    """The number of examples, where it is known without reading them: a loader counts batches."""
    examples: Any = getattr(part, "dataset", part)
    return f"{len(examples):,}" if hasattr(examples, "__len__") else "an unknown number"


def split(labels: torch.Tensor, share: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of the rest and of a hold-out, both rising: `share` of every label, to within one, drawn at random."""
    if not 0 <= share < 1:
        raise InvalidOption(f"A hold-out of {share} of the training data was asked for. Give a share of 0 to below 1.")
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_label = shuffled[np.argsort(labels.cpu().numpy()[shuffled], kind="stable")]
    due = np.floor(np.arange(len(labels) + 1) * share + 1e-9)  # one more is due after every 1 / share of a label
    taken = np.diff(due) > 0
    return torch.from_numpy(np.sort(by_label[~taken])), torch.from_numpy(np.sort(by_label[taken]))
