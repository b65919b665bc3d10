"""Data: a data set in three parts, and how the hold-out is split off the training data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from aacp.data.images import Images
from aacp.errors import InvalidData, InvalidOption

UNNAMED = "data"
Source: TypeAlias = Dataset[Any] | Iterable[Any]  # a data set, a loader, or tensors (inputs, labels)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set in three parts: training data, hold-out for the search, and test data for the final network only."""

    train: Source
    holdout: Source  # Paper: "validation" is not defined; here it comes from the training data, never the test set
    test: Source
    name: str = UNNAMED  # shown in reports; a run is resumed only with data of the same name
    classes: tuple[str, ...] = ()  # the name of each label; empty if not known

    @classmethod
    def of(cls, train: Source, test: Source, *, holdout: float = 0.1, seed: int = 0, name: str = UNNAMED) -> Data:
        """Split a share of the training data off as the hold-out.

        If the training data has labels (as `targets`, `labels`, or the second of its tensors), the same share of every
        label is held out. The hold-out goes through the transforms of the training data; if those augment, make
        two data sets and use aacp.Data(train, holdout, test).

        Args:
            train: a data set, a loader, or tensors (inputs, labels).
            test: the same for the test data.
            holdout: the share of the training data to hold out.
            seed: chooses which examples are held out.
            name: shown in reports, and compared when a run is resumed.
        """
        rest, held = _without_holdout(name, train, holdout, seed)
        return cls(rest, held, test, name, _classes(train))

    def all_training(self) -> Source:
        """Training data and hold-out joined, to train the final network on both."""
        return _joined(self.name, self.train, self.holdout)

    def __str__(self) -> str:
        parts = {"for training": self.train, "held out": self.holdout, "for testing": self.test}
        return f"{self.name}: " + ", ".join(f"{_size(part)} {what}" for what, part in parts.items())


def _size(part: Source) -> str:
    """The number of examples, if it is known without reading them; that of a loader is its data set's."""
    examples: Any = getattr(part, "dataset", part)
    return f"{len(examples):,}" if hasattr(examples, "__len__") else "an unknown number"


def split(labels: torch.Tensor, share: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of the remaining examples and of the hold-out, both sorted.

    The hold-out has `share` of the examples of every label, to within one example, drawn at random.
    """
    if not 0 <= share < 1:
        raise InvalidOption(f"The hold-out is {share} of the training data. Give a share of at least 0 and below 1.")
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_label = shuffled[np.argsort(labels.cpu().numpy()[shuffled], kind="stable")]
    due = np.floor(np.arange(len(labels) + 1) * share + 1e-9)  # rises by one after every 1 / share examples
    taken = np.diff(due) > 0
    return torch.from_numpy(np.sort(by_label[~taken])), torch.from_numpy(np.sort(by_label[taken]))


def _without_holdout(name: str, train: Any, share: float, seed: int) -> tuple[Source, Source]:
    """The training data without its hold-out, and the hold-out, both in the form of the training data."""
    if isinstance(train, Images):
        rest, held = split(train.labels, share, seed)
        return train.subset(rest), train.subset(held)
    if isinstance(train, DataLoader) and _is_plain(train):
        rest_set, held_set = _without_holdout(name, train.dataset, share, seed)
        return _loader_like(train, rest_set), _loader_like(train, held_set, held=True)
    if isinstance(train, tuple) and len(train) == 2 and all(isinstance(part, torch.Tensor) for part in train):
        return _without_holdout(name, TensorDataset(*train), share, seed)
    if isinstance(train, Dataset) and not isinstance(train, IterableDataset) and hasattr(train, "__len__"):
        rest, held = split(_labels(train), share, seed)
        return Subset(train, rest.tolist()), Subset(train, held.tolist())
    raise InvalidData(
        f"No hold-out can be taken from the training data of {name}, a {type(train).__name__}. Give a data set with a "
        "length, a loader with torch's default sampler and __iter__, or aacp.Data(train, holdout, test) with your own "
        "hold-out."
    )


def _joined(name: str, train: Any, holdout: Any) -> Source:
    """Training data and hold-out as one, in the form of the training data."""
    if type(train) is type(holdout) and hasattr(
        train, "joined"
    ):  # aacp's own data sets: all examples are augmented alike
        both: Source = train.joined(holdout)
        return both
    if isinstance(train, DataLoader) and _is_plain(train):
        held = holdout.dataset if isinstance(holdout, DataLoader) else holdout
        return _loader_like(train, _joined(name, train.dataset, held))
    sets = [TensorDataset(*part) if isinstance(part, tuple) else part for part in (train, holdout)]
    if all(isinstance(part, Dataset) and not isinstance(part, IterableDataset) for part in sets):
        return ConcatDataset(sets)
    raise InvalidData(
        f"The hold-out of {name}, a {type(holdout).__name__}, cannot be trained on together with a "
        f"{type(train).__name__}. Give data sets or plain loaders, or train without the hold-out."
    )


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Whether a loader gives each example once, in random or sequential order, so that one like it fits other data.

    A loader class with its own `__iter__` cannot be rebuilt for other data.
    """
    sampler = loader.sampler
    if type(loader).__iter__ is not DataLoader.__iter__:
        return False
    if type(loader.batch_sampler) is not BatchSampler or type(sampler) not in (RandomSampler, SequentialSampler):
        return False
    size = len(loader.dataset)  # type: ignore[arg-type]
    return not isinstance(sampler, RandomSampler) or (not sampler.replacement and sampler.num_samples == size)


def _loader_like(loader: DataLoader[Any], dataset: Any, held: bool = False) -> DataLoader[Any]:
    """A loader with the same settings for other data; for a hold-out (`held`), in order and without dropping any."""
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        shuffle=not held and isinstance(loader.sampler, RandomSampler),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=not held and loader.drop_last,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=not held and loader.persistent_workers,
    )


def _labels(train: Any) -> torch.Tensor:
    """The labels of a data set that has them as an attribute (as torchvision's do), or else zeros.

    Reading every example only to see its label could take hours.
    """
    found = getattr(train, "targets", getattr(train, "labels", None))
    if found is None and isinstance(train, TensorDataset) and len(train.tensors) == 2:
        found = train.tensors[1]
    labels = np.asarray(found)
    usable = labels.shape == (len(train),) and labels.dtype.kind in "iu"
    return torch.from_numpy(labels.astype(np.int64)) if usable else torch.zeros(len(train))


def _classes(train: Any) -> tuple[str, ...]:
    inner = train.dataset if isinstance(train, DataLoader) else train
    return tuple(map(str, getattr(inner, "classes", ())))
