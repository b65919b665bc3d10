"""Accuracy: the share of correct labels, and errors for targets that cannot be compared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aacp import Batches, InvalidData, accuracy


class Answer(nn.Module):
    """A network with fixed outputs, whatever its inputs are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


OUTPUTS = torch.eye(4)[[0, 1, 2, 3, 0]]


def test_accuracy_is_the_share_of_right_answers_over_uneven_batches() -> None:
    assert accuracy(Answer(), Batches.of((OUTPUTS, torch.tensor([0, 1, 2, 0, 1])), batch_size=2)) == 3 / 5


def test_pixels_count_where_targets_are_maps() -> None:
    maps = torch.zeros(1, 2, 2, 2)
    maps[0, 1, 0] = 1.0
    assert accuracy(Answer(), Batches.of((maps, torch.tensor([[[1, 1], [1, 1]]])))) == 0.5


def test_a_network_in_training_mode_is_scored_in_evaluation_mode() -> None:
    """In training mode, batch norms would adapt to the data, and dropout would change the outputs."""
    norm = nn.BatchNorm1d(4)
    network = nn.Sequential(norm, nn.Dropout(0.9), nn.Identity()).train()
    network[2].eval()
    before = norm.running_mean.clone()
    assert accuracy(network, Batches.of((OUTPUTS, torch.tensor([0, 1, 2, 3, 0])))) == 1
    assert torch.equal(norm.running_mean, before)
    assert [module.training for module in network.modules()] == [True, True, True, False]


def test_exported_modules_and_functions_are_scored_too() -> None:
    batches = Batches.of((OUTPUTS, torch.tensor([0, 1, 2, 3, 1])))
    exported = torch.export.export(Answer(), (OUTPUTS,)).module()
    assert accuracy(exported, batches) == accuracy(lambda x: x, batches) == 4 / 5  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([(OUTPUTS, torch.tensor([0, 1, 2, 3, 9]))], r"1 of 5 labels are outside 0\.\.3"),
        ([(OUTPUTS, torch.tensor([0, -1, -2, 3, 0]))], "2 of 5 labels"),
        ([OUTPUTS], "labels are missing"),
        ([(OUTPUTS, torch.rand(5))], "torch.float32"),
        ([(OUTPUTS, torch.zeros(5, 4, dtype=torch.int64))], "Give your own score function"),
    ],
)
def test_what_cannot_be_counted_is_said(batches, words) -> None:
    with pytest.raises(InvalidData, match=words):
        accuracy(Answer(), Batches.of(batches))
