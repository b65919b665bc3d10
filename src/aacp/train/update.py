"""One training step: the protocol, and its plain form."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from aacp.data.examples import call
from aacp.train.averaging import Average
from aacp.train.loader_batches import IGNORED
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
        optimiser: has its highest learning rates when the update is made.
        objective: the loss.
        teacher: the networks to imitate, if any.
        average: the moving average of the weights, if the recipe keeps one.
        highest_lr: the highest learning rate of the recipe; that of each parameter group is changed in proportion.
        clip: the largest norm of all gradients together; 0 for no limit.
    """

    fabric: Fabric
    model: nn.Module
    optimiser: torch.optim.Optimizer
    objective: Objective
    teacher: Teacher | None
    average: Average | None
    highest_lr: float
    clip: float = 0.0
    group_lrs: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.group_lrs = [float(group["lr"]) for group in self.optimiser.param_groups]

    def __call__(self, inputs: Any, targets: Any, lr: float) -> Tensor:
        self.set_lr(lr)
        return self.step(inputs, targets)

    def set_lr(self, lr: float) -> None:
        for group, highest in zip(self.optimiser.param_groups, self.group_lrs, strict=True):
            is_plain = math.isclose(highest, self.highest_lr, rel_tol=1e-6)  # a tensor holds fewer digits
            found = lr if is_plain else highest * lr / self.highest_lr
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(found)
            else:
                group["lr"] = found

    def step(self, inputs: Any, targets: Any) -> Tensor:
        """Change the weights once, with the learning rate that is set."""
        self.optimiser.zero_grad(set_to_none=True)
        taught = None if self.teacher is None else self.ask(self.teacher, inputs)
        outputs = self.forward(inputs)
        loss = self.objective(outputs, targets, taught)
        self.backward(loss)
        if self.clip:
            self.fabric.clip_gradients(self.model, self.optimiser, max_norm=self.clip, error_if_nonfinite=False)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        return torch.stack([loss.detach().float(), share_correct(outputs, targets)])

    def ask(self, teacher: Teacher, inputs: Any) -> list[Any]:
        """The outputs of the teachers for a batch."""
        with self.fabric.autocast():
            return teacher(inputs)

    def forward(self, inputs: Any) -> Any:
        """The network's outputs for a batch."""
        return call(self.model, inputs)

    def backward(self, loss: Tensor) -> None:
        """Give every parameter its gradient."""
        self.fabric.backward(loss)


def share_correct(outputs: Any, targets: Any) -> Tensor:
    """The share of labels that equal the largest output; NaN if targets are not labels of these outputs.

    Labels that losses ignore do not count.
    """
    comparable = isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.dim() > 1
    if not comparable or targets.is_floating_point() or outputs.shape[:1] + outputs.shape[2:] != targets.shape:
        device = targets.device if isinstance(targets, Tensor) else None
        return torch.full((), torch.nan, device=device)
    correct: Tensor = outputs.detach().argmax(1) == targets
    counting: Tensor = targets != IGNORED
    return correct.float().sum() / counting.float().sum()
