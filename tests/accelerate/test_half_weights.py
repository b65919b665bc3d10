"""Half-precision copies of weights: the results of autocast, to the last bit."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from aacp.accelerate.half_weights import HalfWeights
from aacp.accelerate.update import concurrent
from aacp.train.fabric import half_type, make_fabric
from aacp.train.recipe import Recipe
from aacp.train.session import Session
from aacp.train.sources import batches_of
from aacp.train.update import PlainUpdate
from train.small_data import network, pictures, same, weights

RECIPE = Recipe(epochs=3, batch_size=16, lr=0.1, nesterov=True, weight_decay=1e-3, average=0.9, precision="bf16-mixed")


def test_training_with_half_weights_is_training_with_autocast_to_the_last_bit() -> None:
    found = []
    for is_copied in (False, True):
        model, fabric = network(), make_fabric("bf16-mixed", "cpu")
        session = Session(model, batches_of(pictures(), RECIPE, fabric), RECIPE, fabric)
        assert isinstance(session.update, PlainUpdate)
        half = half_type(fabric)
        assert half is torch.bfloat16
        if is_copied:
            session.update = concurrent(session.update, HalfWeights(session.update.model, half))
        epochs = [replace(session.run_epoch(number), seconds=0.0, images_per_second=0.0) for number in range(2)]
        assert session.average is not None
        found.append((epochs, weights(model), copy.deepcopy(session.average.state())))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])
    assert same(found[0][2], found[1][2])


def test_only_what_torchs_own_layers_multiply_is_halved() -> None:
    class Standardised(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)

    embedding, head = nn.Embedding(5, 4), nn.Linear(4, 5)
    head.weight = embedding.weight
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), Standardised(3, 4, 1), embedding, head)
    model[0].bias.requires_grad_(False)  # type: ignore[union-attr]
    assert HalfWeights(model, torch.bfloat16).names == ["0.weight", "4.bias"]


def test_a_gradient_that_came_another_way_is_added() -> None:
    model = nn.Linear(3, 1, bias=False)
    half_weights = HalfWeights(model, torch.bfloat16)
    (half_weights(torch.ones(2, 3).bfloat16()).sum().float() + 3 * model.weight.sum()).backward()
    half_weights.pass_on_gradients()
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[5.0, 5.0, 5.0]]


def test_what_is_computed_of_other_weights_is_left_alone() -> None:
    model = nn.Conv2d(2, 3, 1)
    model.scale = nn.Parameter(torch.ones(3))  # as of a hook that makes a weight of it
    assert HalfWeights(model, torch.bfloat16).names == ["weight", "bias"]
