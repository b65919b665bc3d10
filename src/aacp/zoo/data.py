"""Data by name: the digits, CIFAR-10, folders of pictures, or a function of the user's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, Subset

from aacp.data.images import Images
from aacp.data.splits import Data, Source, split
from aacp.errors import InvalidData, UnknownData
from aacp.zoo.cifar10 import cifar10
from aacp.zoo.digits import digits
from aacp.zoo.folders import image_folder
from aacp.zoo.imports import function_of

NAMES = "digits, cifar10:PATH, imagefolder:PATH, or package.module:function for your own"


def load_data(name: str, *, holdout: float = 0.1, seed: int = 0, on_corrupt: str = "refuse") -> Data:
    """The data of a name; `holdout` of its training pictures, the same ones for the same seed, are for the search.

    A function of the user's returns `Data`, or training and test data (data sets or loaders) without a hold-out.
    Of pictures in folders, those that cannot be read are named and, with `on_corrupt`, refused or skipped.
    """
    source, separator, place = name.partition(":")
    if name == "digits":
        return digits(holdout, seed)
    if not separator or not source or not place:
        raise UnknownData(f"{name!r} is not a name of data. Write {NAMES}.")
    if source == "cifar10":
        return cifar10(place, holdout, seed)
    if source == "imagefolder":
        return image_folder(place, holdout, seed, on_corrupt)
    return _from_user(source, place, holdout, seed)


def _from_user(source: str, entry: str, holdout: float, seed: int) -> Data:
    name = f"{source}:{entry}"
    found = function_of(source, entry, "the data", UnknownData)()
    if isinstance(found, Data):
        return found
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise UnknownData(
            f"{name} returned a {type(found).__name__}, neither aacp.Data nor a pair. Return (training, test) data."
        )
    train, test = found
    rest, held = _without_holdout(name, train, holdout, seed)
    return Data(name, rest, held, test, _classes(train))


def _without_holdout(name: str, train: Any, holdout: float, seed: int) -> tuple[Source, Source]:
    """The training data without its hold-out, and that."""
    if isinstance(train, Images):
        rest, held = split(train.labels, holdout, seed)
        return train.subset(rest), train.subset(held)
    if isinstance(train, DataLoader) and type(train.sampler) in (RandomSampler, SequentialSampler):
        rest_set, held_set = _without_holdout(name, train.dataset, holdout, seed)
        return _loader_like(train, rest_set), held_set
    if isinstance(train, Dataset) and not isinstance(train, IterableDataset) and hasattr(train, "__len__"):
        rest, held = split(_labels(train), holdout, seed)
        return Subset(train, rest.tolist()), Subset(train, held.tolist())
    raise InvalidData(
        f"No hold-out can be taken from the training data of {name}, a {type(train).__name__}. Return "
        "aacp.Data(name, train, holdout, test, classes), or a data set with a length."
    )


def _loader_like(loader: DataLoader[Any], dataset: Any) -> DataLoader[Any]:
    """A loader with the same settings for other data."""
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        shuffle=isinstance(loader.sampler, RandomSampler),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _labels(train: Any) -> torch.Tensor:
    """The labels of a data set that tells them (as torchvision's do), else one for all: reading it may take hours."""
    labels = np.asarray(getattr(train, "targets", getattr(train, "labels", None)))
    usable = labels.shape == (len(train),) and labels.dtype.kind in "iu"
    return torch.from_numpy(labels.astype(np.int64)) if usable else torch.zeros(len(train))


def _classes(train: Any) -> tuple[str, ...]:
    inner = train.dataset if isinstance(train, DataLoader) else train
    return tuple(map(str, getattr(inner, "classes", ())))
