"""Turn the user's data into training batches for one process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from aacp.data.endless import length_of, require_countable
from aacp.data.images import Images
from aacp.data.seeding import samplers_of
from aacp.data.splits import as_dataset, require_examples
from aacp.errors import InvalidData, InvalidOption
from aacp.pytorch.modules import has_norms
from aacp.train.device_batches import DeviceBatches
from aacp.train.loader_batches import LoaderBatches
from aacp.train.recipe import Recipe
from aacp.user.values import counted

if TYPE_CHECKING:
    from lightning_fabric import Fabric

CLIP = 5.0  # the largest norm of gradients in networks without normalisation layers, if the recipe leaves it open


def batches_of(train: Any, recipe: Recipe, fabric: Fabric) -> DeviceBatches | LoaderBatches:
    """Training data as batches for this process."""
    ranks = fabric.world_size
    check_batches(train, recipe, ranks)
    train = as_dataset(train)
    kind = DeviceBatches if isinstance(train, Images) else LoaderBatches
    return kind(train, recipe.batch_size, recipe.seed, fabric.device, fabric.global_rank, ranks)


def check_batches(train: Any, recipe: Recipe, ranks: int) -> None:
    """Reject data that cannot be divided into batches for this number of processes."""
    if not has_own_batches(train) and recipe.batch_size % ranks:
        raise InvalidOption(
            f"A batch of {recipe.batch_size} cannot be divided among {ranks} processes. Use a batch size that is a "
            f"multiple of {ranks}."
        )
    if isinstance(train, torch.Tensor) or not getattr(train, "is_labelled", True):
        raise InvalidData(
            "The training data are inputs without labels, but training compares outputs with labels. Give pairs "
            "(inputs, labels), or prune without training."
        )
    train = as_dataset(train)
    if length_of(train) is None:
        raise InvalidData(
            f"{type(train).__name__} has no length, but the learning rate depends on the number of steps in an epoch. "
            "Give a data set or a loader with a length."
        )
    if isinstance(train, IterableDataset):
        raise InvalidData(
            f"{type(train).__name__} is an IterableDataset, whose examples come in its own order, but training orders "
            "those of a data set. Give a loader of it: DataLoader(data, batch_size)."
        )
    require_examples(train, "training data")
    if ranks > 1:
        _require_whole_batches(train)
    if has_own_batches(train):
        return
    require_countable(len(train))
    if recipe.batch_size > len(train):
        raise InvalidData(
            f"The batch size is {recipe.batch_size}, but the data has only {counted(len(train), 'example')}. Give more "
            "data or a smaller batch size."
        )


def _require_whole_batches(train: Any) -> None:
    """Reject a loader that gives every process other examples: training would use a share of each share."""
    for sampler in samplers_of(train):
        if getattr(sampler, "num_replicas", 1) > 1:
            raise InvalidData(
                f"The loader's {type(sampler).__name__} gives each process a share of the examples, but training "
                "divides every batch among the processes itself. Give the loader without it, for all processes alike."
            )


def has_own_batches(train: Any) -> bool:
    """Whether the data is a loader, which makes its own batches."""
    return not isinstance(train, (Dataset, tuple))


def as_carried_out(recipe: Recipe, train: Any, model: nn.Module) -> Recipe:
    """The recipe with what the data and the network decide: a loader's batch size, and whether gradients are clipped.

    Args:
        recipe: as it was given.
        train: the training data; a loader's batch size replaces that of the recipe.
        model: the network, which decides about a recipe whose `clip` is None.
    """
    own = getattr(train, "batch_size", None) if has_own_batches(train) else None
    if isinstance(own, int):
        recipe = replace(recipe, batch_size=own)
    return replace(recipe, clip=0.0 if has_norms(model) else CLIP) if recipe.clip is None else recipe


def parts_of(data: Any, holdout: Any) -> tuple[Any, Any]:
    """The data to train on and the data to score on; the result of `load_data` contains both."""
    if not (hasattr(data, "train") and hasattr(data, "holdout")):
        return data, holdout
    held = data.holdout if holdout is None else holdout
    return data.train, None if length_of(held) == 0 else held
