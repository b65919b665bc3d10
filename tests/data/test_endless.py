"""Loaders of users that never end, announce a wrong length, or fail; and labels that are too many or not whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from aacp import Batches, Data, InvalidData
from aacp.data import endless
from aacp.data.splits import sampled

BATCH = (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))


class Endless:
    """A loader that never ends, with the length that it announces, if any."""

    def __init__(self, batch: Any = BATCH) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(self.batch)


class Announced(Endless):
    def __len__(self) -> int:
        return 3


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat((torch.zeros(2), 0))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "MAX_UNANNOUNCED_BATCHES", 50)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("loader", [Endless(), DataLoader(Stream(), 4)])
def test_a_loader_without_end_is_rejected_with_what_it_gave(loader: Any, keep: bool) -> None:
    message = "has no length, but has given 51 batches with 204 examples and does not end"
    with pytest.raises(InvalidData, match=message):
        list(Batches.of(loader, keep=keep))
    with pytest.raises(InvalidData, match=message):
        len(Batches.of(loader, keep=keep))


def test_a_generator_without_end_is_rejected() -> None:
    with pytest.raises(InvalidData, match="does not end"):
        Batches.of(itertools.repeat(BATCH))


def test_a_loader_that_gives_far_more_than_it_announces_is_rejected() -> None:
    with pytest.raises(InvalidData, match="announces 3 batches, but has given 107 batches"):
        list(Batches.of(Announced(), keep=False))


def test_batches_without_examples_do_not_go_on_for_ever() -> None:
    with pytest.raises(InvalidData, match="51 batches with 0 examples"):
        Batches.of(Endless((torch.zeros(0, 2), torch.zeros(0))), images=2)


def test_the_first_examples_of_an_endless_loader_can_be_read() -> None:
    assert Batches.of(Endless(), images=10).images == 10
    assert Batches.of(Endless((torch.zeros(1, 2), torch.zeros(1))), images=120).images == 120  # more than 50 batches


def test_the_limits_are_beyond_usual_loaders() -> None:
    assert endless.MAX_UNANNOUNCED_EXAMPLES >= 10 * 50_000  # the validation images of ImageNet


class Failing(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise ValueError("no such file")
        return torch.zeros(2), 0


@pytest.mark.parametrize("workers", [0, 1])
def test_what_the_users_data_set_raises_is_one_sentence_with_its_line(workers: int) -> None:
    with pytest.raises(
        InvalidData, match=r"^Reading the data failed with .*no such file.*Correct the loader"
    ) as caught:
        Batches.of(DataLoader(Failing(), 4, num_workers=workers))
    assert "\n" not in str(caught.value)
    assert workers or "__getitem__, test_endless.py, line" in str(caught.value)


# -- labels -----------------------------------------------------------------------------------------------------------


def test_ten_billion_shared_labels_are_rejected_at_once() -> None:
    many = torch.zeros(1, dtype=torch.int64).expand(10**10)
    inputs = torch.zeros(1, 1).expand(10**10, 1)
    for source in ((inputs, many), inputs):
        with pytest.raises(InvalidData, match="10,000,000,000 examples, but at most 100,000,000"):
            Data.of(source)
        with pytest.raises(InvalidData, match="10,000,000,000 examples, but at most 100,000,000"):
            sampled(source, 100)
        with pytest.raises(InvalidData, match="10,000,000,000 examples, but at most 100,000,000"):
            Batches.of(source)


class Labelled(Dataset[Any]):
    def __init__(self, targets: Any) -> None:
        self.targets = targets

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(2), 0


def shared(levels: int) -> list[Any]:
    """A hundred times the same list of ten times the same list, and so on."""
    inner: list[Any] = [0] * 10
    for _ in range(levels):
        inner = [inner] * 10
    return [inner] * 100


@pytest.mark.parametrize(
    "targets", [[0.7] * 100, shared(10), [10**30] * 100, [None] * 100, 5, torch.zeros(100), "x" * 100]
)
def test_labels_that_are_not_whole_numbers_are_not_split_by(targets: Any) -> None:
    data = Data.of(Labelled(targets), holdout=10)
    assert len(data.holdout) == 10  # type: ignore[arg-type]


def test_whole_labels_of_every_kind_are_split_by() -> None:
    for kind in (list, tuple, torch.tensor, lambda labels: [torch.tensor(label) for label in labels]):
        data: Any = Data.of(Labelled(kind([0] * 80 + [1] * 20)), holdout=10, seed=1)
        # 20 of 100 examples are test data, and of each part the same share has label 1.
        assert sum(index >= 80 for index in data.test.indices) == 4


def test_inputs_and_labels_of_different_length_are_rejected() -> None:
    with pytest.raises(InvalidData, match=r"inputs of shape \(5, 2\) and labels of shape \(4,\)"):
        Data.of((torch.zeros(5, 2), torch.zeros(4, dtype=torch.int64)))
    with pytest.raises(InvalidData, match="one number without a first dimension"):
        Data.of(torch.tensor(1.0))
