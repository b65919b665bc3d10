"""Sources: what may be trained on, whatever the user brings, as batches for one process."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from typing import Any

import torch
from lightning_fabric import Fabric
from torch.utils.data import Dataset, TensorDataset

from aacp.data.images import Images
from aacp.errors import InvalidData, InvalidOption
from aacp.train.device_batches import DeviceBatches
from aacp.train.loader_batches import LoaderBatches
from aacp.train.recipe import Recipe


def source_of(train: Any, recipe: Recipe, fabric: Fabric) -> DeviceBatches | LoaderBatches:
    """Training data as batches for this process."""
    ranks = fabric.world_size
    if recipe.batch_size % ranks:
        raise InvalidOption(
            f"A batch of {recipe.batch_size} cannot be dealt out to {ranks} processes. Use a batch size that is a "
            f"multiple of {ranks}."
        )
    if isinstance(train, tuple) and len(train) == 2 and all(isinstance(part, torch.Tensor) for part in train):
        train = TensorDataset(*train)
    if not _has_length(train):
        raise InvalidData(
            f"{type(train).__name__} has no length, and a schedule needs to know how many steps an epoch has. "
            "Give a data set or a loader with a length."
        )
    if not len(train):
        raise InvalidData("There is no data: the data set or loader is empty. Give at least one batch.")
    kind = DeviceBatches if isinstance(train, Images) else LoaderBatches
    return kind(train, recipe.batch_size, recipe.seed, fabric.device, fabric.global_rank, ranks)


def has_own_batches(train: Any) -> bool:
    """Whether data comes in batches, as a loader gives it, and not example by example."""
    return not isinstance(train, (Dataset, tuple))


def as_carried_out(recipe: Recipe, train: Any) -> Recipe:
    """The recipe with the batch size that is trained with: that of a loader, where it has one, wins over its own."""
    own = getattr(train, "batch_size", None) if has_own_batches(train) else None
    return replace(recipe, batch_size=own) if isinstance(own, int) else recipe


def parts_of(data: Any, holdout: Any) -> tuple[Any, Any]:
    """What to train on and what to score on; what `load_data` gives holds both."""
    if not (hasattr(data, "train") and hasattr(data, "holdout")):
        return data, holdout
    held = data.holdout if holdout is None else holdout
    return data.train, None if _has_length(held) and not len(held) else held


def _has_length(source: Any) -> bool:
    """Whether a source says how much there is, which schedules need to know."""
    try:
        return isinstance(source, Sized) and len(source) >= 0
    except TypeError:  # a loader of an iterable data set has __len__ and raises
        return False
