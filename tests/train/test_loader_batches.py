"""Batches from user-defined data sets and loaders: order, shares, workers, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from aacp.errors import InvalidData
from aacp.train.loader_batches import LoaderBatches

CPU = torch.device("cpu")
NUMBERS = TensorDataset(torch.arange(50.0)[:, None], torch.zeros(50, dtype=torch.int64))


def seen(source: LoaderBatches, epoch: int) -> list[list[float]]:
    return [inputs.flatten().tolist() for inputs, _ in source.epoch(epoch)]


def test_a_data_set_is_gone_through_once_in_an_order_of_the_epoch() -> None:
    source = LoaderBatches(NUMBERS, 8, 0, CPU)
    first = seen(source, 0)
    assert [len(batch) for batch in first] == [8] * 6
    assert len({number for batch in first for number in batch}) == 48
    assert seen(source, 0) == first
    assert seen(source, 1) != first


def test_processes_share_targets_that_are_a_list() -> None:
    objects = [{"boxes": torch.full((number, 4), float(number))} for number in (4, 4, 1, 2)]
    loader = [(torch.arange(4.0)[:, None], objects)]
    for rank in range(2):
        ((inputs, targets),) = LoaderBatches(loader, 4, 0, CPU, rank, 2).epoch(0)
        assert inputs.flatten().tolist() == [2 * rank, 2 * rank + 1]
        assert [len(target["boxes"]) for target in targets] == [[4, 4], [1, 2]][rank]


@pytest.mark.parametrize("kind", ["data set", "loader", "loader with a generator"])
def test_shares_of_processes_put_together_are_the_batch_of_one(kind: str) -> None:
    def source(rank: int, ranks: int) -> LoaderBatches:
        torch.manual_seed(rank)  # processes differ in this
        generator = torch.Generator() if "generator" in kind else None
        data = NUMBERS if kind == "data set" else DataLoader(NUMBERS, 8, shuffle=True, generator=generator)
        return LoaderBatches(data, 8, 0, CPU, rank, ranks)

    whole = seen(source(0, 1), 3)
    parts = [seen(source(rank, 2), 3) for rank in range(2)]
    assert [one + other for one, other in zip(*parts, strict=True)] == whole


def test_other_inputs_than_one_tensor_come_through() -> None:
    batch = ({"left": torch.ones(4, 2), "right": torch.zeros(4, 2)}, torch.zeros(4, dtype=torch.int64))
    ((inputs, _),) = LoaderBatches([batch], 4, 0, CPU, 1, 2).epoch(0)
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == {"left": (2, 2), "right": (2, 2)}


@pytest.mark.parametrize("targets", [torch.ones(5, 6), [{"boxes": torch.ones(k, 4)} for k in range(3)]])
def test_targets_that_processes_cannot_share_are_rejected(targets: Any) -> None:
    batch = (torch.ones(4, 2), targets)
    assert len(list(LoaderBatches([batch], 4, 0, CPU).epoch(0))) == 1
    with pytest.raises(InvalidData, match=r"A batch of 4 examples has targets of shape \(\d, \d\), which are not one"):
        list(LoaderBatches([batch], 4, 0, CPU, 1, 2).epoch(0))


@pytest.mark.parametrize("there", ["cpu", "meta"])  # the device "meta" stands for a GPU
def test_only_examples_in_the_memory_of_the_host_are_pinned_and_come_from_workers(there: str) -> None:
    data = TensorDataset(torch.zeros(640, 4, device=there), torch.zeros(640, dtype=torch.long, device=there))
    source = LoaderBatches(data, 32, 0, torch.device("cuda"))
    loader = source._loader(0)
    assert loader.pin_memory == (there == "cpu")
    assert (loader.num_workers > 0) == (source.workers > 0) == (there == "cpu")


class Refusing(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        raise InvalidData("img_7.jpg is broken. Delete it.")


def test_an_error_of_ours_in_a_worker_arrives_in_its_own_words() -> None:
    loader = DataLoader(Refusing(), 4, num_workers=1)
    with pytest.raises(InvalidData) as caught:
        list(LoaderBatches(loader, 4, 0, CPU).epoch(0))
    assert str(caught.value) == "img_7.jpg is broken. Delete it."
