"""Loss functions of the user that raise or return what cannot be minimised."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

import aacp

DATA = (torch.randn(8, 3), torch.arange(8) % 3)
RECIPE = aacp.Recipe(epochs=1, batch_size=4, lr=0.01)


def failing(outputs: Any, targets: Any) -> torch.Tensor:
    return outputs["gone"]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (failing, r"The loss function failed: .* \(in failing, test_bad_losses.py, line"),
        (lambda outputs, targets: outputs.detach().mean(), "returned a number without a gradient"),
        (lambda outputs, targets: outputs, r"returned a tensor of shape \(4, 3\)"),
        (lambda outputs, targets: None, "returned a NoneType"),
        (lambda outputs, targets: 0.5, "returned a float"),
    ],
)
def test_a_loss_that_cannot_be_minimised_is_named(loss: Any, words: str) -> None:
    with pytest.raises(aacp.InvalidLoss, match=words):
        aacp.fit(nn.Linear(3, 3), DATA, RECIPE, loss=loss, device="cpu")


@pytest.mark.parametrize("fields", [{"loss": "mse"}, {"score": 5}, {"recipe": {"epochs": 1}}, {"until": 0.5}], ids=str)
def test_what_is_not_a_function_or_a_recipe_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(aacp.InvalidOption):
        aacp.fit(nn.Linear(3, 3), DATA, **{"recipe": RECIPE, "device": "cpu", **fields})


def test_a_loss_that_ends_the_program_is_an_error() -> None:
    with pytest.raises(aacp.UserCodeFailed, match=r"SystemExit: 0 \(in <lambda>, test_bad_losses.py"):
        aacp.fit(nn.Linear(3, 3), DATA, RECIPE, loss=lambda *_: sys.exit(0), device="cpu")
