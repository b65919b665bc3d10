from collections import Counter

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from aacp import Data, InvalidOption
from aacp.data.splits import split


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


def test_every_picture_of_a_label_is_drawn_equally_often() -> None:
    drawn = torch.zeros(20)
    for seed in range(400):
        drawn[split(torch.arange(20) % 2, 0.2, seed)[1]] += 1
    assert drawn.sum() == 400 * 4
    assert (drawn - 80).abs().max() < 5 * (400 * 0.2 * 0.8) ** 0.5


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(InvalidOption, match="hold-out"):
        split(torch.zeros(4), share)


def test_data_tells_its_sizes_in_examples_also_of_loaders() -> None:
    part = TensorDataset(torch.zeros(1200, 1))
    data = Data("mine", DataLoader(part, batch_size=7), part, iter([]), ())
    assert str(data) == "mine: 1,200 to train on, 1,200 held out, an unknown number to test on"
