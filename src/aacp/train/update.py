"""One training step: the protocol, its plain form, and the optimiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from aacp.data.examples import call
from aacp.errors import InvalidOption
from aacp.train.averaging import Average
from aacp.train.recipe import Recipe
from aacp.train.teaching import Objective, Teacher

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Update(Protocol):
    """Trains a network on one batch. `PlainUpdate` is the reference; `aacp.accelerate` has faster forms."""

    def __call__(self, inputs: Any, targets: Any, lr: float) -> Tensor:
        """Change the weights once.

        Returns:
            The loss and the share of correct labels, as one tensor on the device. Reading it would make the processor
            wait for the device, so the caller reads many at once.
        """


@dataclass
class PlainUpdate:
    """The training step as one would write it: teacher, network, loss, backward pass, optimiser, moving average.

    Args:
        fabric: runs the backward pass, and sums gradients over processes.
        model: the network as `fabric.setup` returns it.
        optimiser: its learning rate must be a tensor that all parameter groups share.
        objective: the loss.
        teacher: the networks to imitate, if any.
        average: the moving average of the weights, if the recipe keeps one.
    """

    fabric: Fabric
    model: nn.Module
    optimiser: torch.optim.Optimizer
    objective: Objective
    teacher: Teacher | None
    average: Average | None

    def __call__(self, inputs: Any, targets: Any, lr: float) -> Tensor:
        self.set_lr(lr)
        return self.step(inputs, targets)

    def set_lr(self, lr: float) -> None:
        shared: Tensor = self.optimiser.param_groups[0]["lr"]
        shared.fill_(lr)

    def step(self, inputs: Any, targets: Any) -> Tensor:
        """Change the weights once, with the learning rate that is set."""
        self.optimiser.zero_grad(set_to_none=True)
        taught = None if self.teacher is None else self.ask(self.teacher, inputs)
        outputs = self.forward(inputs)
        loss = self.objective(outputs, targets, taught)
        self.backward(loss)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        return torch.stack([loss.detach().float(), share_correct(outputs, targets)])

    def ask(self, teacher: Teacher, inputs: Any) -> Tensor:
        """The teacher's log-probabilities for a batch."""
        with self.fabric.autocast():
            return teacher(inputs, self.objective.temperature)

    def forward(self, inputs: Any) -> Any:
        """The network's outputs for a batch."""
        return call(self.model, inputs)

    def backward(self, loss: Tensor) -> None:
        """Give every parameter its gradient."""
        self.fabric.backward(loss)


def sgd(model: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.SGD:
    """Stochastic gradient descent for a network; the learning rate is a tensor on the device."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InvalidOption("No parameter of the network requires a gradient. Unfreeze the layers to be trained.")
    decayed = [parameter for parameter in trained if recipe.decays_norms or parameter.dim() > 1]
    spared = [parameter for parameter in trained if not recipe.decays_norms and parameter.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=torch.tensor(recipe.lr, device=device),
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        fused=device.type in ("cpu", "cuda"),
    )


def share_correct(outputs: Any, targets: Any) -> Tensor:
    """The share of labels that equal the largest output; NaN if targets are not labels of these outputs."""
    comparable = isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.dim() > 1
    if not comparable or targets.is_floating_point() or outputs.shape[:1] + outputs.shape[2:] != targets.shape:
        device = targets.device if isinstance(targets, Tensor) else None
        return torch.full((), torch.nan, device=device)
    correct: Tensor = outputs.detach().argmax(1) == targets
    return correct.float().mean()
