from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from aacp import Data, Images, InvalidData, InvalidOption
from aacp.data.splits import sampled, split


@pytest.mark.parametrize("share", [0.0, 0.1, 0.29, 0.5, 0.999])
def test_a_hold_out_takes_its_share_of_every_label(share: float) -> None:
    labels = torch.tensor([label for label, count in enumerate([100, 37, 250, 1, 12]) for _ in range(count)])
    labels = labels[torch.randperm(400)]
    rest, held = split(labels, share, seed=3)
    assert sorted([*rest.tolist(), *held.tolist()]) == list(range(400))
    assert len(held) == int(400 * share + 1e-6)
    counts, all_counts = Counter(labels[held].tolist()), Counter(labels.tolist())
    assert all(abs(counts[label] - share * count) < 1 for label, count in all_counts.items())


def test_the_same_seed_gives_the_same_split_and_another_seed_another() -> None:
    labels = torch.arange(300) % 10
    first, again, other = (split(labels, 0.2, seed)[1].tolist() for seed in (0, 0, 1))
    assert first == again
    assert len(set(first) & set(other)) < 30  # twelve of sixty are expected by chance


def test_every_image_of_a_label_is_drawn_equally_often() -> None:
    drawn = torch.zeros(20)
    for seed in range(400):
        drawn[split(torch.arange(20) % 2, 0.2, seed)[1]] += 1
    assert drawn.sum() == 400 * 4
    assert (drawn - 80).abs().max() < 5 * (400 * 0.2 * 0.8) ** 0.5


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), -1, "0.1", True])
def test_a_hold_out_that_is_no_share_and_no_number_is_rejected(share: float) -> None:
    with pytest.raises(InvalidOption, match=r"^The hold-out is .*\. Give a share of at least 0 and below 1"):
        split(torch.zeros(4), share)


def test_numbers_of_numpy_are_shares_and_numbers_of_examples() -> None:
    assert len(split(torch.zeros(40), np.int64(7), np.int64(3))[1]) == 7
    assert len(split(torch.zeros(40), np.float32(0.25))[1]) == 10


def test_a_seed_below_zero_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"^seed is -1, below 0\."):
        Data.of(pairs(), pairs(), seed=-1)


@pytest.mark.parametrize("count", [0, 1, 7, 40, 399])
def test_a_hold_out_of_a_number_has_that_number_and_the_same_share_of_every_label(count: int) -> None:
    labels = torch.tensor([label for label, size in enumerate([100, 37, 250, 1, 12]) for _ in range(size)])
    rest, held = split(labels, count, seed=3)
    assert sorted([*rest.tolist(), *held.tolist()]) == list(range(400))
    assert len(held) == count
    counts = Counter(labels[held].tolist())
    assert all(abs(counts[label] - count * size / 400) < 1 for label, size in Counter(labels.tolist()).items())


def test_by_default_a_tenth_is_held_out_and_at_most_5000() -> None:
    assert len(split(torch.zeros(143))[1]) == 14
    assert len(split(torch.zeros(50_000))[1]) == 5000
    rest, held = split(torch.arange(80_000) % 1000)
    assert (len(rest), len(held)) == (75_000, 5000)
    assert set(Counter((held % 1000).tolist()).values()) == {5}


@pytest.mark.parametrize("count", [4, 5000])
def test_a_hold_out_that_leaves_nothing_to_train_on_is_rejected(count: int) -> None:
    with pytest.raises(
        InvalidOption, match=r"hold-out of .* examples is requested, but the training data has 4.*\. Give"
    ):
        split(torch.zeros(4), count)


class Silent(TensorDataset):
    """A data set that names its labels and must not be read."""

    targets = [0] * 30 + [1] * 10

    def __getitem__(self, index: int) -> object:
        raise AssertionError("read")


def test_a_sample_has_the_same_share_of_every_label_and_reads_nothing() -> None:
    source = Silent(torch.zeros(40, 1))
    for part in (sampled(source, 20, seed=1), sampled(DataLoader(source, 4), 20, seed=1).dataset):  # type: ignore[attr-defined]
        assert isinstance(part, Subset)
        assert part.indices == sorted(part.indices)
        assert Counter(Silent.targets[position] for position in part.indices) == {0: 15, 1: 5}
    again, other = (sampled(source, 20, seed=seed).indices for seed in (1, 2))  # type: ignore[attr-defined]
    assert again == part.indices != other


def test_a_sample_of_more_than_there_is_is_everything_in_order() -> None:
    loader = DataLoader(pairs(10), 4, shuffle=True, drop_last=True)
    assert numbers(sampled(loader, 99)) == list(range(10))
    assert numbers(sampled(pairs(10), 10)) == list(range(10))


def test_a_sample_of_images_is_not_augmented_and_one_of_tensors_has_their_rows() -> None:
    images = Images(torch.arange(20, dtype=torch.uint8).reshape(20, 1, 1, 1), torch.arange(20) % 2, (0.5,), (0.2,), 4)
    part = sampled(images, 6)
    assert isinstance(part, Images)
    assert (len(part), part.padding, int(part.labels.sum())) == (6, 0, 3)
    assert torch.equal(part.pixels.flatten() % 2, part.labels)
    assert len(numbers(sampled((torch.arange(9.0)[:, None], torch.zeros(9)), 4))) == 4


def test_arrays_of_numpy_are_answered_with_the_types_that_are_accepted() -> None:
    with pytest.raises(
        InvalidData, match=r"a tuple of ndarray, ndarray\. Give tensors \(inputs, labels\), a data set with a length"
    ):
        Data.of((np.zeros((9, 1, 2, 2)), np.zeros(9)))  # type: ignore[arg-type]


def test_a_stream_cannot_be_sampled_and_an_empty_sample_is_rejected() -> None:
    stream = iter([])
    assert sampled(stream, 5) is stream
    with pytest.raises(InvalidOption, match=r"A sample of 0 images has nothing to measure\. Give"):
        sampled(pairs(), 0)


def test_data_tells_its_sizes_in_examples_also_of_loaders() -> None:
    part = TensorDataset(torch.zeros(1200, 1))
    data = Data(DataLoader(part, batch_size=7), part, Stream(), name="mine")
    assert str(data) == "mine: 1,200 for training, 1,200 held out, an unknown number for testing"
    assert (
        str(Data.of(part, (torch.zeros(6, 1), torch.zeros(6))))
        == "data: 1,080 for training, 120 held out, 6 for testing"
    )
    batches = [(torch.zeros(size, 1), torch.zeros(size)) for size in (5, 5, 2)]
    assert str(Data(batches, batches[:1], batches[1:])) == "data: 12 for training, 5 held out, 7 for testing"


def pairs(count: int = 40) -> TensorDataset:
    return TensorDataset(torch.arange(count).float()[:, None], torch.arange(count) % 2)


def numbers(part: object) -> list[int]:
    """Which examples a data set or a loader gives, in its order."""
    batches = part if isinstance(part, DataLoader) else DataLoader(part)  # type: ignore[arg-type]
    return [int(number) for inputs, _ in batches for number in inputs]


def test_data_needs_no_more_than_three_parts() -> None:
    data = Data(pairs(), pairs(), pairs())
    assert (data.name, data.classes) == ("data", ())


class Stream:
    """A loader without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter([])


class Restarting:
    """A loader that is its own iterator, and starts again for every loop."""

    def __iter__(self) -> Restarting:
        self.left = 2
        return self

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    "given", [iter([]), zip([1], [2], strict=True), (batch for batch in ()), iter(DataLoader([1]))]
)
def test_what_can_be_read_only_once_is_rejected(given: Any) -> None:
    part = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    kind = type(given).__name__
    for place, name in enumerate(("training", "held-out", "test")):
        parts: list[Any] = [part, part, part]
        parts[place] = given
        with pytest.raises(InvalidData, match=rf"The {name} data are a {kind}, which .* only once, .*\. Give a loader"):
            Data(*parts)
    assert Data(part, Restarting(), part).name == "data"


@pytest.mark.parametrize("train", [pairs(), DataLoader(pairs(), 4), pairs().tensors], ids=["set", "loader", "tensors"])
def test_a_hold_out_comes_from_the_training_data_evenly_by_label(train: object) -> None:
    data = Data.of(train, pairs(8), holdout=0.25, seed=1, name="mine")  # type: ignore[arg-type]
    held, rest = numbers(data.holdout), numbers(data.train)
    assert sorted([*held, *rest]) == list(range(40))
    assert Counter(number % 2 for number in held) == {0: 5, 1: 5}
    assert numbers(data.test) == list(range(8))
    assert data.name == "mine"


@pytest.mark.parametrize("train", [pairs(), DataLoader(pairs(), 4, shuffle=True), pairs().tensors])
def test_training_data_and_hold_out_come_together_again(train: object) -> None:
    data = Data.of(train, pairs(8), holdout=0.25)  # type: ignore[arg-type]
    both = data.all_training()
    assert isinstance(both, DataLoader) == isinstance(train, DataLoader)
    assert sorted(numbers(both)) == list(range(40))
    assert not isinstance(both, DataLoader) or numbers(both) != numbers(both)  # shuffled as before


def test_a_loader_of_a_list_is_split_sampled_and_joined_like_that_of_a_data_set() -> None:
    train = DataLoader(list(pairs()), 4, shuffle=True)  # type: ignore[arg-type]
    data = Data.of(train, pairs(8), holdout=0.25)
    assert (len(numbers(data.holdout)), len(numbers(data.train))) == (10, 30)
    assert sorted(numbers(data.all_training())) == list(range(40))
    assert len(set(numbers(sampled(train, 6)))) == 6


def test_images_come_together_again_with_their_settings() -> None:
    images = Images(torch.arange(20, dtype=torch.uint8).reshape(20, 1, 1, 1), torch.arange(20) % 2, (0.5,), (0.2,), 4)
    both = Data.of(images, images, holdout=0.3).all_training()
    assert isinstance(both, Images)
    assert sorted(both.pixels.flatten().tolist()) == list(range(20))
    assert torch.equal(both.labels, both.pixels.flatten().long() % 2)
    assert both.padding == 4


def test_a_part_of_labelled_data_has_their_labels() -> None:
    """One example in ten is of class 1, also in what is held out after the test data, and in a sample of the rest."""
    labels = (torch.arange(200) % 10 == 0).long()
    for seed in range(4):
        data = Data.of((torch.zeros(200, 3), labels), seed=seed, holdout=40)
        for part in (data.test, data.holdout, sampled(data.train, 40, seed)):
            assert sorted(int(label) for _, label in part) == [0] * 36 + [1] * 4


def test_examples_that_the_sampler_of_a_hold_out_leaves_out_are_not_trained_on() -> None:
    images = TensorDataset(torch.arange(20.0)[:, None], torch.zeros(20, dtype=torch.int64))
    held, test = (DataLoader(images, 4, sampler=SubsetRandomSampler(range(*part))) for part in ((0, 10), (10, 20)))
    with pytest.raises(InvalidData, match="a DataLoader with a SubsetRandomSampler, cannot be trained on together"):
        Data(DataLoader(images, 4), held, test).all_training()


def test_a_stream_cannot_be_joined_to_training_data() -> None:
    with pytest.raises(InvalidData, match=r"hold-out of data, a Stream, cannot be trained on .* Give data sets"):
        Data(pairs(), Stream(), pairs()).all_training()


def test_a_loader_with_an_iteration_of_its_own_is_not_taken_apart() -> None:
    class Normalising(DataLoader[object]):
        def __iter__(self):
            return ((10 + x, y) for x, y in super().__iter__())

    with pytest.raises(InvalidData, match="a loader with torch's default sampler and __iter__"):
        Data.of(Normalising(pairs(), 8), pairs())


def test_a_hold_out_of_a_loader_is_whole_in_order_and_collated_alike() -> None:
    def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([row[0] for row in rows]) + 1000, torch.stack([row[1] for row in rows])

    train = DataLoader(pairs(50), 4, shuffle=True, drop_last=True, collate_fn=collate)
    data = Data.of(train, pairs(), holdout=0.3)
    held, rest = numbers(data.holdout), numbers(data.train)
    assert len(held) == 15
    assert held == sorted(held)
    assert len(rest) == 32  # of 35: the training loader drops what is left over
    assert min(held + rest) >= 1000


def test_parts_of_a_loader_start_their_workers_alike() -> None:
    data = Data.of(DataLoader(pairs(), 4, num_workers=1, timeout=60, multiprocessing_context="spawn"))
    for part in (data.train, data.holdout, data.test, data.all_training(), sampled(data.train, 8)):
        assert isinstance(part, DataLoader)
        assert (part.num_workers, part.timeout) == (1, 60)
        assert part.multiprocessing_context is not None
        assert part.multiprocessing_context.get_start_method() == "spawn"


@pytest.mark.parametrize(
    ("loader", "what"),
    [
        (
            DataLoader(pairs(), sampler=WeightedRandomSampler([1.0] * 40, 40)),
            "a WeightedRandomSampler with replacement",
        ),
        (DataLoader(pairs(), sampler=RandomSampler(pairs(), replacement=True)), "a RandomSampler with replacement"),
        (DataLoader(pairs(), batch_sampler=[[0, 1], [2, 3]]), "a list"),
        (
            DataLoader(pairs(), batch_sampler=BatchSampler(WeightedRandomSampler([1.0] * 40, 40), 4, drop_last=False)),
            "a BatchSampler",
        ),
        (DataLoader(pairs(), batch_size=None), "out a batch size"),
    ],
    ids=["weighted", "with replacement", "batches of its own", "weighted in batches", "unbatched"],
)
def test_a_loader_with_an_order_of_its_own_is_not_taken_apart(loader: DataLoader[object], what: str) -> None:
    words = rf"No hold-out .* of data, a DataLoader with ?{what}\. Give .*aacp.Data\(train, holdout"
    with pytest.raises(InvalidData, match=words):
        Data.of(loader, pairs())
