"""Data: a data set in three parts, and how the hold-out is split off the training data."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from aacp.data.endless import length_of, require_countable
from aacp.data.examples import batch_size_of
from aacp.errors import InvalidData, InvalidOption
from aacp.user.options import known_options
from aacp.user.values import checked_holdout, counted, seed_number

UNNAMED = "data"
DEFAULT_SHARE = 0.1  # of the training data is held out by default
MAX_DEFAULT = 5000  # images are held out by default at most: their accuracy has a standard error below 0.7 points
TEST_SHARE = 0.2  # of data that comes as one part is used as test data, and at most MAX_DEFAULT examples
Holdout: TypeAlias = float | None  # a share below 1, a whole number of examples, or None for the default
Source: TypeAlias = Dataset[Any] | Iterable[Any]  # a data set, a loader, tensors (inputs, labels), or inputs alone


@dataclass(frozen=True, eq=False)
class Data:
    """A data set in three parts: training data, hold-out for the search, and test data for the final network only."""

    train: Source
    holdout: Source  # Paper: "validation" is not defined; here it comes from the training data, never the test set
    test: Source
    name: str = UNNAMED  # shown in reports; a run is resumed only with data of the same name
    classes: tuple[str, ...] = ()  # the name of each label; empty if not known
    holdout_seed: int | None = None  # chose the hold-out, if `of` did

    def __post_init__(self) -> None:
        for name, part in (("training", self.train), ("held-out", self.holdout), ("test", self.test)):
            if _is_read_once(part):
                raise InvalidData(
                    f"The {name} data are a {type(part).__name__}, which can be read only once, but a run reads them "
                    "several times. Give a loader, a data set or a list of batches."
                )

    @classmethod
    @known_options
    def of(
        cls,
        train: Source,
        test: Source | None = None,
        *,
        holdout: Holdout = None,
        seed: int = 0,
        name: str = UNNAMED,
    ) -> Data:
        """Split a part of the training data off as the hold-out and, if there are no test data, another as these.

        If the training data has labels (as `targets`, `labels`, or the second of its tensors), the same share of every
        label is held out. The hold-out goes through the transforms of the training data; if those augment, make
        two data sets and use aacp.Data(train, holdout, test).

        Args:
            train: a data set, a loader, or tensors (inputs, labels); without labels, one of inputs alone, or a tensor.
            test: the same for the test data; None takes a fifth of `train`, and at most 5,000 examples.
            holdout: the part of the training data to hold out; see `split`.
            seed: chooses which examples are held out.
            name: shown in reports, and compared when a run is resumed.
        """
        classes = _classes(train)
        if test is None:
            train, test = _without_holdout(name, train, _test_size(train), seed)
        _require_same_kind(name, train, test)
        rest, held = _without_holdout(name, train, holdout, seed)
        return cls(rest, held, test, name, classes, seed)

    def all_training(self) -> Source:
        """Training data and hold-out joined, to train the final network on both."""
        return _joined(self.name, self.train, self.holdout)

    def __str__(self) -> str:
        parts = {"for training": self.train, "held out": self.holdout, "for testing": self.test}
        sizes = {what: number_of_examples(part) for what, part in parts.items()}
        known = {what: "an unknown number" if size is None else f"{size:,}" for what, size in sizes.items()}
        return f"{self.name}: " + ", ".join(f"{size} {what}" for what, size in known.items())


def _is_read_once(part: Source) -> bool:
    """Whether data are an iterator of Python or of torch; other loaders that are iterators may start again."""
    library = type(part).__module__.partition(".")[0]
    return (
        isinstance(part, Iterator) and not isinstance(part, Dataset) and library in ("builtins", "itertools", "torch")
    )


def number_of_examples(part: Source) -> int | None:
    """The number of examples, if it is known without reading them; that of a loader is its data set's.

    A list holds batches.
    """
    if isinstance(part, list):
        try:
            return sum(map(batch_size_of, part))
        except InvalidData:  # they are rejected with more words when they are read
            return len(part)
    examples: Any = part if isinstance(part, Dataset) else getattr(part, "dataset", part)  # a Subset has one too
    if isinstance(part, tuple) and part and isinstance(part[0], torch.Tensor):
        examples = part[0]
    return length_of(examples)


def require_examples(part: Source, name: str) -> None:
    """Reject a part of the data that is known to be empty, by its name."""
    if number_of_examples(part) == 0:
        is_split_off = name == "held-out data"  # which is rarely given: a share of few examples may be none
        advice = (
            "Hold out more of the training data (holdout, --holdout)." if is_split_off else "Give at least one batch."
        )
        raise InvalidData(f"The {name} has no examples. {advice}")
    if length_of(part) == 0:
        raise InvalidData(
            f"The loader of the {name} has no batches, as with drop_last and fewer examples than a batch. Give more "
            "examples, or smaller batches."
        )


def split(labels: torch.Tensor, holdout: Holdout = None, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of the remaining examples and of the hold-out, both sorted.

    The hold-out has the same share of the examples of every label, to within one example, drawn at random.

    Args:
        labels: the label of each example.
        holdout: the share to hold out, at least 0 and below 1; or the number of examples, an int; None holds out a
            tenth, and at most 5,000 examples.
        seed: chooses which examples are held out.
    """
    require_countable(len(labels))
    due = _due(len(labels), holdout)
    shuffled = np.random.default_rng(seed_number(seed)).permutation(len(labels))
    by_label = shuffled[np.argsort(labels.cpu().numpy()[shuffled], kind="stable")]
    taken = np.diff(due) > 0
    return torch.from_numpy(np.sort(by_label[~taken])), torch.from_numpy(np.sort(by_label[taken]))


def _due(examples: int, holdout: Holdout) -> NDArray[np.int64]:
    """How many of the first 0, 1, 2, ... examples are held out: this rises evenly."""
    holdout = checked_holdout(holdout)
    if holdout is None:
        holdout = DEFAULT_SHARE if examples * DEFAULT_SHARE <= MAX_DEFAULT else MAX_DEFAULT
    ranks = np.arange(examples + 1)
    due: NDArray[np.int64]
    if not isinstance(holdout, int):
        due = np.floor(ranks * holdout + 1e-9).astype(np.int64)
        return due
    if holdout >= max(1, examples):
        raise InvalidOption(
            f"A hold-out of {counted(holdout, 'example')} is requested, but the training data has {examples:,}, "
            "of which some must remain for training. Give a smaller number, or a share such as 0.1."
        )
    due = ranks * holdout // max(1, examples)
    return due


def sampled(source: Any, images: int, seed: int = 0) -> Source:
    """A sample of the examples of a source, in its order, with the same share of every label, without augmentation.

    Nothing is read for it. A stream, or a loader that orders its examples in its own way, is returned as it is.

    Args:
        source: a data set, a loader, or tensors (inputs, labels).
        images: the number of examples; a source with fewer of them is used whole.
        seed: chooses the examples.
    """
    if images < 1:
        raise InvalidOption(f"A sample of {images} images has nothing to measure. Give a positive number.")
    source = as_dataset(source)
    if hasattr(source, "subset") and hasattr(source, "unaugmented"):  # aacp's own data sets
        part: Source = source.subset(_positions(source.labels, images, seed)).unaugmented()
        return part
    if isinstance(source, DataLoader) and _is_plain(source):
        return _loader_like(source, sampled(_data_set_of(source), images, seed), held=True)
    if isinstance(source, torch.Tensor):
        return source[_positions(_unlabelled(source), images, seed)]
    if isinstance(source, Dataset) and not isinstance(source, IterableDataset) and length_of(source) is not None:
        return Subset(source, _positions(_labels(source), images, seed).tolist())
    return source  # type: ignore[no-any-return]


def _test_size(train: Any) -> int:
    """How many examples of data that comes as one part are used as test data."""
    return min(MAX_DEFAULT, int(TEST_SHARE * (number_of_examples(train) or 0)))


def _require_same_kind(name: str, train: Any, test: Any) -> None:
    """Reject tensors of training and test inputs that differ in shape: they may be meant as inputs and labels."""
    if not (isinstance(train, torch.Tensor) and isinstance(test, torch.Tensor)):
        return
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise InvalidData(
            f"Two tensors of {name} are training inputs of shape {tuple(train.shape)} and test inputs of shape "
            f"{tuple(test.shape)}, which do not fit one network. Give ((inputs, labels), (inputs, labels)) if the "
            "second tensor holds labels."
        )


def _positions(labels: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    return split(labels, count, seed)[1] if count < len(labels) else torch.arange(len(labels))


def _without_holdout(name: str, train: Any, share: Holdout, seed: int) -> tuple[Source, Source]:
    """The training data without its hold-out, and the hold-out, both in the form of the training data."""
    train = as_dataset(train)
    if hasattr(train, "subset") and hasattr(train, "unaugmented"):  # aacp's own data sets
        rest, held = split(train.labels, share, seed)
        return train.subset(rest), train.subset(held)
    if isinstance(train, DataLoader) and _is_plain(train):
        rest_set, held_set = _without_holdout(name, _data_set_of(train), share, seed)
        return _loader_like(train, rest_set), _loader_like(train, held_set, held=True)
    if isinstance(train, torch.Tensor):
        rest, held = split(_unlabelled(train), share, seed)
        return train[rest], train[held]
    if isinstance(train, Dataset) and not isinstance(train, IterableDataset) and length_of(train) is not None:
        rest, held = split(_labels(train), share, seed)
        return Subset(train, rest.tolist()), Subset(train, held.tolist())
    raise InvalidData(
        f"No hold-out can be taken from the training data of {name}, {_form(train)}. Give tensors (inputs, labels), a "
        "data set with a length, a loader with torch's default sampler and __iter__, or aacp.Data(train, holdout, "
        "test) with your own hold-out."
    )


def _form(train: Any) -> str:
    """What training data are, with the part of them that keeps a hold-out from being taken."""
    form = f"a {type(train).__name__}"
    if isinstance(train, tuple):
        return f"{form} of {', '.join(type(part).__name__ for part in train)}"
    if not isinstance(train, DataLoader) or type(train).__iter__ is not DataLoader.__iter__:
        return form
    if isinstance(train.dataset, IterableDataset):
        return f"{form} of an IterableDataset"
    if train.batch_size is None and train.batch_sampler is None:
        return f"{form} without a batch size"
    sampler: Any = train.sampler if train.batch_size is not None else train.batch_sampler
    replaced = " with replacement" if getattr(sampler, "replacement", False) else ""
    return f"{form} with a {type(sampler).__name__}{replaced}"


def _joined(name: str, train: Any, holdout: Any) -> Source:
    """Training data and hold-out as one, in the form of the training data."""
    if type(train) is type(holdout) and hasattr(
        train, "joined"
    ):  # aacp's own data sets: all examples are augmented alike
        both: Source = train.joined(holdout)
        return both
    are_whole = all(_is_plain(part) for part in (train, holdout) if isinstance(part, DataLoader))
    if isinstance(train, DataLoader) and are_whole:  # a sampler may leave examples out, such as those for testing
        held = holdout.dataset if isinstance(holdout, DataLoader) else holdout
        return _loader_like(train, _joined(name, train.dataset, held))
    if isinstance(train, torch.Tensor) and isinstance(holdout, torch.Tensor):
        return torch.cat([train, holdout])
    sets = [as_dataset(part) for part in (train, holdout)]
    if all(isinstance(part, Dataset) and not isinstance(part, IterableDataset) for part in sets):
        return ConcatDataset(sets)
    raise InvalidData(
        f"The hold-out of {name}, {_form(holdout)}, cannot be trained on together with {_form(train)}. Give "
        "data sets or plain loaders, or train without the hold-out."
    )


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Whether a loader gives each example once, in random or sequential order, so that one like it fits other data.

    A loader class with its own `__iter__` cannot be rebuilt for other data.
    """
    sampler = loader.sampler
    if type(loader).__iter__ is not DataLoader.__iter__:
        return False
    # Without a batch size, the examples come one by one, or the user's batch sampler orders them, not `sampler`.
    if loader.batch_size is None or type(sampler) not in (RandomSampler, SequentialSampler):
        return False
    size = len(loader.dataset)  # type: ignore[arg-type]
    return not isinstance(sampler, RandomSampler) or (not sampler.replacement and sampler.num_samples == size)


def _data_set_of(loader: DataLoader[Any]) -> Any:
    """The data set of a loader; a list or another sequence, which torch accepts too, as a data set."""
    found: Any = loader.dataset
    is_known = isinstance(found, (Dataset, torch.Tensor, tuple)) or hasattr(found, "subset")
    return found if is_known else Subset(found, range(len(found)))


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
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=not held and loader.persistent_workers,
    )


def _unlabelled(inputs: torch.Tensor) -> torch.Tensor:
    """A label of 0 for each input."""
    if not inputs.dim():
        raise InvalidData("The inputs are one number without a first dimension. Give a tensor of (examples, ...).")
    require_countable(len(inputs))
    return torch.zeros(len(inputs))


def _labels(train: Any) -> torch.Tensor:
    """The labels of a data set that has them as an attribute (as torchvision's do), or else zeros.

    Reading every example only to see its label could take hours.
    """
    count = len(train)
    require_countable(count)
    found = getattr(train, "targets", getattr(train, "labels", None))
    if found is None and isinstance(train, TensorDataset) and len(train.tensors) == 2:
        found = train.tensors[1]
    labels = _whole_numbers(found, count)
    if labels is None and isinstance(train, Subset) and length_of(train.dataset) is not None:  # such as after a split
        positions = _whole_numbers(list(train.indices), count)
        with suppress(IndexError):  # a wrong position is an error of the data set, which reading reports
            labels = None if positions is None else _labels(train.dataset)[positions]
    return torch.zeros(count) if labels is None else labels


def _whole_numbers(found: Any, count: int) -> torch.Tensor | None:
    """Labels as a tensor, if they are one whole number for each example: a label of 0.7 is not cut to 0."""
    if isinstance(found, torch.Tensor):
        found = found.detach().cpu().numpy()
    if isinstance(found, np.ndarray):
        is_whole = found.shape == (count,) and found.dtype.kind in "iu"
        return torch.from_numpy(found.astype(np.int64)) if is_whole else None
    if not isinstance(found, (list, tuple)) or len(found) != count:
        return None
    try:
        return torch.tensor([operator.index(label) for label in found], dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # not whole, or more than 64 bits
        return None


def as_dataset(source: Any) -> Any:
    """A pair of tensors (inputs, labels) as a data set; other data as they are."""
    is_pair = isinstance(source, tuple) and len(source) == 2 and all(isinstance(part, torch.Tensor) for part in source)
    if not is_pair:
        return source
    inputs, labels = source
    if not inputs.dim() or not labels.dim() or len(inputs) != len(labels):
        raise InvalidData(
            f"There are inputs of shape {tuple(inputs.shape)} and labels of shape {tuple(labels.shape)}, which are not "
            "one label for each input. Give as many labels as inputs."
        )
    return TensorDataset(inputs, labels)


def _classes(train: Any) -> tuple[str, ...]:
    inner = train.dataset if isinstance(train, DataLoader) else train
    found = getattr(inner, "classes", ())
    return tuple(map(str, found)) if isinstance(found, (list, tuple)) else ()
