"""Training in a memory layout that the code of the network, of its teacher and of the user can work with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aacp.data.examples import inputs_of
from aacp.pytorch.layout import CHANNELS_LAST, PLAIN, usable_layout
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from train.small_data import CLASSES, small_images

RECIPE = Recipe(epochs=2, batch_size=16, lr=0.05)


class Convolutional(nn.Module):
    """A network that joins channels with positions by `view`, which needs contiguous tensors, or by `reshape`."""

    def __init__(self, is_view: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 6 * 6, CLASSES)
        self.is_view = is_view
        self.join = torch.Tensor.view if is_view else torch.Tensor.reshape
        self.was_contiguous: set[bool] = set()

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        if self.training:
            self.was_contiguous.add(x.is_contiguous())
        return self.fc(self.join(x, (len(x), -1)))  # type: ignore[no-any-return]


def trained(is_view: bool, device: str = "cpu", **options: Any) -> Convolutional:
    model = Convolutional(is_view)
    recipe = replace(RECIPE, **options.pop("recipe", {}))
    fit(model, small_images(64), recipe, device=device, **options)
    return model


def differences(one: nn.Module, other: nn.Module) -> float:
    both = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in both)


@pytest.mark.parametrize("recipe", [{}, {"average": 0.5}, {"mixing": 1.0}], ids=["plain", "averaged", "mixed"])
def test_a_network_that_needs_contiguous_tensors_learns_like_one_that_does_not(recipe: dict[str, Any]) -> None:
    needing, other = trained(True, recipe=recipe), trained(False, recipe=recipe)
    assert needing.was_contiguous == {True}
    assert other.was_contiguous == {False}
    assert differences(needing, other) < 1e-5
    assert differences(needing, Convolutional(True)) > 1e-2  # of the weights before


class Flattening(torch.optim.SGD):
    """Keeps numbers for each weight in the layout of torch.zeros, and reads them in this order."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state.setdefault("sums", torch.zeros(parameter.shape)).add_(parameter.grad)
                parameter.grad.add_(state["sums"].view(-1).sum())
        return super().step(closure)


def flattening(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return Flattening(parameters, lr=lr / 10, momentum=0.9)


@pytest.mark.parametrize("is_view", [True, False], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("optimiser", ["sgd", "adamw", flattening])
def test_a_resumed_training_has_the_state_of_its_optimiser_in_the_layout_that_it_had(
    is_view: bool, optimiser: Any, tmp_path: Path
) -> None:
    recipe = {"optimiser": optimiser, "average": 0.5}
    trained(is_view, recipe=recipe, folder=tmp_path, until=1)
    resumed = trained(is_view, recipe=recipe, folder=tmp_path)
    assert differences(resumed, trained(is_view, recipe=recipe)) == 0


class InTrainingAlone(Convolutional):
    """A network that needs contiguous tensors in training mode alone, as a head for training may; it draws numbers."""

    def forward(self, x: Tensor) -> Tensor:
        self.join = torch.Tensor.view if self.training and self.is_view else torch.Tensor.reshape
        return F.dropout(super().forward(x), 0.2, self.training)


def test_code_for_training_alone_may_need_contiguous_tensors_too() -> None:
    both = [InTrainingAlone(is_view) for is_view in (True, False)]
    for model in both:
        torch.manual_seed(1)
        fit(model, small_images(64), RECIPE, device="cpu")
    assert [model.was_contiguous for model in both] == [{True}, {False}]
    assert differences(*both) < 1e-5  # so the trial changes neither the statistics nor the random numbers


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine")
@pytest.mark.parametrize("average", [0.0, 0.5])
def test_a_network_that_needs_contiguous_tensors_is_trained_on_a_gpu(average: float) -> None:
    recipe = {"average": average, "distillation": 0.5}
    needing = trained(True, "cuda", recipe=recipe, teacher=Convolutional(True))
    other = trained(False, "cuda", recipe=recipe, teacher=Convolutional(True))
    assert needing.was_contiguous == {True}
    assert differences(needing, other) < 0.05  # in half precision


@pytest.mark.parametrize("student_needs_it", [False, True])
def test_a_teacher_that_needs_contiguous_tensors_can_teach(student_needs_it: bool) -> None:
    recipe = {"distillation": 0.5}
    found = trained(student_needs_it, recipe=recipe, teacher=Convolutional(True).eval())
    expected = trained(False, recipe=recipe, teacher=Convolutional(False).eval())
    assert differences(found, expected) < 1e-5


def test_the_loss_and_the_score_of_the_user_get_contiguous_outputs() -> None:
    def squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs.view(len(outputs), -1), targets.view(len(targets), -1))

    @torch.no_grad()
    def likeness(network: nn.Module, batches: Any) -> float:
        return -float(sum(network(inputs_of(batch)).view(-1).square().sum() for batch in batches))

    torch.manual_seed(0)
    model = nn.Conv2d(2, 3, 3)
    data = torch.randn(32, 2, 6, 6), torch.randn(32, 3, 4, 4)
    assert fit(model, data, RECIPE, holdout=data, loss=squared, score=likeness, device="cpu").last.holdout is not None
    assert model.weight.is_contiguous()
    assert model(data[0]).is_contiguous()


class Wrapped(nn.Conv2d):
    """A network that gives objects of a class of the user."""

    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(image=super().forward(x))


def test_outputs_in_objects_of_any_class_are_contiguous_too() -> None:
    def squared(outputs: Any, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs.image.view(len(targets), -1), targets.view(len(targets), -1))

    @torch.no_grad()
    def likeness(network: nn.Module, batches: Any) -> float:
        return -float(sum(squared(network(inputs), targets) for inputs, targets in batches))

    model = Wrapped(2, 3, 3)
    data = torch.randn(32, 2, 6, 6), torch.randn(32, 3, 4, 4)
    assert fit(model, data, RECIPE, holdout=data, loss=squared, score=likeness, device="cpu").last.holdout is not None
    assert usable_layout(model, lambda network: network(data[0])) is PLAIN
    assert usable_layout(nn.Conv2d(2, 3, 3), lambda network: {"image": network(data[0])}) is CHANNELS_LAST
