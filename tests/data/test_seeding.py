"""Seeds of loaders: every generator that a loader draws from is seeded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler, TensorDataset

from aacp.data.seeding import seed_loader, seeded_pass

DATA = TensorDataset(torch.arange(30))


class Shuffled(Sampler[list[int]]):
    """Batches that are drawn without another sampler."""

    def __init__(self) -> None:
        self.generator = torch.Generator()

    def __iter__(self) -> Iterator[list[int]]:
        yield from torch.randperm(30, generator=self.generator).reshape(5, 6).tolist()


def shuffling() -> RandomSampler:
    return RandomSampler(DATA, generator=torch.Generator())


LOADERS = {
    "loader": DataLoader(DATA, 6, shuffle=True, generator=torch.Generator()),
    "sampler": DataLoader(DATA, 6, sampler=shuffling()),
    "batch sampler": DataLoader(DATA, batch_sampler=Shuffled()),
    "sampler that draws from the epoch": DataLoader(DATA, 6, sampler=DistributedSampler(DATA, 1, 0)),
    "sampler of the batch sampler": DataLoader(DATA, batch_sampler=BatchSampler(shuffling(), 6, False)),
}


@pytest.mark.parametrize("owner", LOADERS)
def test_a_loader_has_an_order_of_each_epoch(owner: str) -> None:
    loader = LOADERS[owner]
    first, second = (order(seeded_pass(loader)) for _ in range(2))
    assert first == second != sorted(first)
    epochs = []
    for epoch in (0, 1, 0):
        seed_loader(loader, 5, epoch)
        epochs.append(order(iter(loader)))
    assert epochs[0] == epochs[2] != epochs[1]


def order(batches: Iterator[list[torch.Tensor]]) -> list[int]:
    return torch.cat([numbers for (numbers,) in batches]).tolist()
