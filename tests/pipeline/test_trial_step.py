"""A step of training is tried before the search: what cannot be trained is rejected, with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F

import aacp
from aacp.pipeline.task import PruningTask
from aacp.pipeline.trial_step import check_training_step
from pipeline.small_tasks import (
    INPUTS,
    SEARCHED,
    TRAINED,
    Noisy,
    Plain,
    pair,
    task_of,
    task_of_network,
)


class WithHead(Noisy):
    """Uses a head in training alone, on channels that may be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, image: Tensor) -> Tensor:
        features = self.norm(self.first(image)).relu().mean((2, 3))
        answer: Tensor = self.last(features)
        return answer + self.head(features) if self.training else answer


class Answers(Noisy):
    def forward(self, image: Tensor) -> Any:
        return {"logits": super().forward(image)}


class Single(Noisy):
    def forward(self, image: Tensor) -> Any:
        return super().forward(image)[:, :1]


def as_number(image: Tensor, label: Tensor) -> Any:
    return image, label[None].float()


def halved_loss(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs["logits"], targets)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "distillation", "words"),
    [
        (task_of_network(Noisy()), 0.5, None),
        (task_of_network(WithHead()), 0.0, None),  # a head that only runs in training is cut too
        (
            task_of_network(Answers()),
            0.0,
            r"cross-entropy needs probabilities of classes, but .* 'logits'\. Give a loss",
        ),
        (task_of_network(Answers(), loss=halved_loss), 0.0, None),
        (task_of_network(Answers(), loss=halved_loss), 0.5, None),
        (
            task_of_network(Single(), as_number),
            0.0,
            r"cross-entropy needs .* classes, but the outputs are a tensor of shape \(4, 1\)",
        ),
        (task_of_network(Single(), as_number, loss=F.mse_loss), 0.0, None),
    ],
)
def test_what_cannot_be_trained_is_rejected_before_the_search(
    known: PruningTask, distillation: float, words: str | None
) -> None:
    graph = aacp.trace(WithHead().eval() if isinstance(known.model, WithHead) else Plain(), INPUTS[:1])
    before = {name: value.clone() for name, value in known.model.state_dict().items()}
    plan = replace(TRAINED, recipe=replace(TRAINED.recipe, distillation=distillation))
    if words is None:
        check_training_step(known, plan, graph)
        check_training_step(known, SEARCHED, graph)
    else:
        with pytest.raises(aacp.InvalidOption, match=words):
            check_training_step(known, plan, graph)
    assert all(torch.equal(value, before[name]) for name, value in known.model.state_dict().items())


def test_a_network_that_needs_single_precision_is_not_trained_in_another() -> None:
    known = task_of_network(SinglePrecision())
    graph = aacp.trace(SinglePrecision(), INPUTS[:1])
    check_training_step(known, TRAINED, graph)
    half = replace(TRAINED, recipe=replace(TRAINED.recipe, precision="bf16-mixed"))
    check_training_step(known, half, graph, Fabric(accelerator="cpu"))
    words = (
        r"precision bf16-mixed: RuntimeError: no kernel for torch\.bfloat16\. Train in single precision, with '32-true'"
    )
    in_half = Fabric(accelerator="cpu", precision="bf16-mixed")
    for plan, fabric in ((half, None), (TRAINED, in_half)):
        with pytest.raises(aacp.InvalidOption, match=words):
            check_training_step(known, plan, graph, fabric)


@pytest.mark.parametrize("kind", [torch.int32, torch.bool])
def test_labels_that_cross_entropy_does_not_take_are_rejected_before_the_search(kind: torch.dtype) -> None:
    known = task_of_network(Plain(), lambda image, label: (image, label.to(kind)))
    with pytest.raises(aacp.InvalidData, match=rf"training data have labels of {kind}, .*\. Give int64 labels"):
        check_training_step(known, TRAINED, aacp.trace(Plain(), INPUTS[:1]))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            lambda image, label: (image, F.one_hot(label, 2).float()),
            "needs one tensor of inputs and one label for each",
        ),
        (lambda image, label: (image, label.new_tensor(-100)), "the label -100, which losses ignore"),
    ],
)
def test_examples_that_cannot_be_mixed_are_rejected_before_the_search(form: Any, words: str) -> None:
    plan = replace(TRAINED, recipe=replace(TRAINED.recipe, mixing=1.0, mixture="patches"))
    known = task_of_network(Plain(), form)
    with pytest.raises(aacp.InvalidData, match=words):
        check_training_step(known, plan, aacp.trace(Plain(), INPUTS[:1]))


def infinite(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets) / 0


def broken_inputs(image: Tensor, label: Tensor) -> Any:
    return image.clone().fill_(float("nan")), label


@pytest.mark.parametrize(
    ("known", "error", "words"),
    [
        (
            lambda: task_of_network(Plain(), loss=infinite),
            aacp.InvalidLoss,
            "The loss of the unpruned network is inf on a batch of the training data. Check the loss function",
        ),
        (
            lambda: task_of_network(Plain(), broken_inputs),
            aacp.InvalidData,
            "The training data hold inputs that are NaN",
        ),
    ],
)
def test_a_loss_that_is_not_finite_is_rejected_before_the_search(known: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        check_training_step(known(), TRAINED, aacp.trace(Plain(), INPUTS[:1]))


class SinglePrecision(Plain):
    """A network with an operation that has no kernel in half precision, as the Fourier transforms of a GPU."""

    def forward(self, image: Tensor) -> Tensor:
        found = self.first(image)
        if found.dtype is not torch.float32:
            raise RuntimeError(f"no kernel for {found.dtype}")
        return super().forward(image)


class OutOfDevice(Plain):
    """A network on a GPU that other processes have filled."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


@pytest.mark.parametrize(
    "known",
    [lambda: task_of_network(OutOfDevice()), lambda: replace(task_of_network(Plain()), teacher=OutOfDevice())],
    ids=["network", "teacher"],
)
def test_a_failure_of_the_device_is_not_blamed_on_the_loss(known: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^CUDA error: CUBLAS_STATUS_ALLOC_FAILED"):
        check_training_step(known(), TRAINED, aacp.trace(Plain(), INPUTS[:1]))


def test_a_network_without_gradients_is_not_trained() -> None:
    known = task_of(pair)
    graph = aacp.trace(Plain(), INPUTS[:1])
    known.model.requires_grad_(False)
    with pytest.raises(
        aacp.InvalidOption, match=r"^No parameter of the network requires a gradient, .*\. Call requires_grad_"
    ):
        check_training_step(known, TRAINED, graph)
    check_training_step(known, SEARCHED, graph)


def misspelt_rule(groups: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(groups, lr=lr, momentm=0.9)  # type: ignore[call-arg]


def needs_closure(groups: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.LBFGS([parameter for group in groups for parameter in group["params"]], lr=lr)


def misspelt_factor(step: int, steps: int) -> float:
    return 1 / stps  # type: ignore[name-defined,no-any-return]  # noqa: F821


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimiser": misspelt_rule}, r"The optimiser function failed: TypeError: .*'momentm'"),
        ({"optimiser": needs_closure}, r"A step of training fails on the unpruned network: TypeError: .*'closure'"),
        ({"schedule": misspelt_factor}, r"The schedule failed: NameError: name 'stps' is not defined"),
    ],
)
def test_functions_of_a_recipe_are_tried_before_the_search(change: dict[str, Any], words: str) -> None:
    plan = replace(TRAINED, recipe=replace(TRAINED.recipe, **change))
    with pytest.raises(aacp.InvalidOption, match=words):
        check_training_step(task_of_network(Plain()), plan, aacp.trace(Plain(), INPUTS[:1]))


class TwoAnswers(Plain):
    def forward(self, image: Tensor) -> Any:
        found = super().forward(image)
        return {"logits": found, "energy": found.logsumexp(1)}


class OneAnswer(Plain):
    def forward(self, image: Tensor) -> Any:
        return {"logits": super().forward(image)}


def test_a_teacher_needs_only_the_heads_that_are_compared() -> None:
    known = replace(task_of_network(TwoAnswers(), loss=halved_loss), teacher=OneAnswer())
    graph = aacp.trace(TwoAnswers(), INPUTS[:1])
    recipe = replace(TRAINED.recipe, distillation=0.5, heads={"logits": "classes"})
    check_training_step(known, replace(TRAINED, recipe=recipe), graph)
    with pytest.raises(aacp.InvalidOption, match=r"the teacher's outputs are a dictionary of 'logits', the network's"):
        check_training_step(known, replace(TRAINED, recipe=replace(recipe, heads="auto")), graph)
    with pytest.raises(aacp.InvalidData, match="energy"):
        check_training_step(known, replace(TRAINED, recipe=replace(recipe, heads={"energy": "values"})), graph)
