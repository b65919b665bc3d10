"""Folded and widened teachers: half the kernels, the same answers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from aacp.train.folding import folded, quickened
from aacp.train.teaching import Teacher
from aacp.zoo.models import build_model
from graph.micro_networks import _stir
from train.small_data import network, same, weights

CPU = torch.device("cpu")


def norms(model: nn.Module) -> int:
    return sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "left"), [("digits_resnet", 0), ("resnet20-projection", 0)])
def test_every_batch_norm_of_a_resnet_goes_and_answers_stay(name: str, left: int) -> None:
    torch.manual_seed(0)
    model = build_model(name)
    _stir(model)
    before = weights(model)
    inputs = torch.randn(4, 1 if "digits" in name else 3, 8, 8)
    quick = folded(model, inputs)
    assert norms(model) > 0
    assert norms(quick) == left
    torch.testing.assert_close(quick(inputs), copy.deepcopy(model).eval()(inputs), rtol=1e-4, atol=1e-4)
    assert same(weights(model), before)
    assert model.training


def test_a_norm_that_is_no_convolutions_own_stays() -> None:
    class Shared(nn.Module):
        """The first convolution is read twice, the second runs twice, the third stands behind its norm."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
            self.a, self.b, self.c, self.d = (nn.BatchNorm2d(4) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.one(x)
            x = self.a(x) + x
            x = self.two(self.b(self.two(x)))
            return self.d(self.three(self.c(x.relu())))

    model = Shared()
    _stir(model)
    inputs = torch.randn(4, 2, 5, 5)
    quick = folded(model, inputs)
    assert norms(quick) == 3
    assert isinstance(quick.d, nn.Identity)
    torch.testing.assert_close(quick(inputs), model.eval()(inputs), rtol=1e-4, atol=1e-4)


def test_what_cannot_be_followed_or_has_hooks_answers_as_it_is() -> None:
    class Deciding(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if float(x.sum()) > -1e9 else x

    hooked = network()
    hooked[1].register_forward_hook(lambda *_: None)  # type: ignore[index, operator]
    for model in (Deciding(*network()), hooked):
        assert folded(model, torch.randn(4, 2, 6, 6)) is model


def test_a_quickened_ensemble_with_odd_widths_says_what_the_ensemble_says() -> None:
    teachers = [network(1), network(2, dropout=0.5)]
    for teacher in teachers:
        _stir(teacher)
    inputs = torch.randn(4, 2, 6, 6)
    quick = quickened(teachers, inputs)
    assert [model[0].out_channels for model in quick] == [8, 8]  # type: ignore[index]
    assert [norms(model) for model in quick] == [0, 0]
    expected = Teacher(teachers, CPU, None)(inputs, 2.0)
    torch.testing.assert_close(Teacher(quick, CPU, None)(inputs, 2.0), expected, rtol=1e-4, atol=1e-5)
