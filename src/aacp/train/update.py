"""Step: one update of the weights, as it is written and as one captured CUDA graph."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from aacp.accelerate.half_weights import Halves
from aacp.data.batches import call
from aacp.errors import InvalidOption
from aacp.train.averaging import Average
from aacp.train.recipe import Recipe
from aacp.train.teaching import Objective, Teacher

WARM_UP = 3  # steps before a capture, in which libraries allocate and choose their algorithms


class Step:
    """One update: teacher, network, loss, backward, optimiser, moving average. Gives the loss and the hits, unread."""

    def __init__(
        self,
        fabric: Fabric,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        objective: Objective,
        teacher: Teacher | None,
        average: Average | None,
        halves: Halves | None = None,
    ) -> None:
        self.fabric, self.model, self.optimiser, self.halves = fabric, model, optimiser, halves
        self.objective, self.teacher, self.average = objective, teacher, average
        self.lr: Tensor = optimiser.param_groups[0]["lr"]  # a tensor that all groups share, so that a graph reads it
        # The teacher's small kernels leave most of a GPU idle; on a stream of their own they run beside the student's.
        self.side = _stream(fabric.device) if teacher and fabric.device.type == "cuda" else None

    def __call__(self, inputs: Any, targets: Any, lr: float) -> Tensor:
        self.lr.fill_(lr)
        return self.update(inputs, targets)

    def update(self, inputs: Any, targets: Any) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        taught = self._ask(inputs)
        outputs = call(self.model, inputs) if self.halves is None else self.halves(inputs)
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)
        loss = self.objective(outputs, targets, taught)
        self.fabric.backward(loss)
        if self.halves is not None:
            self.halves.hand_over()
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        return torch.stack([loss.detach().float(), hits(outputs, targets)])

    def _ask(self, inputs: Any) -> Tensor | None:
        if self.teacher is None:
            return None
        if self.side is None:
            return self._answer(inputs)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return self._answer(inputs)

    def _answer(self, inputs: Any) -> Tensor:
        assert self.teacher is not None
        with self.fabric.autocast():
            return self.teacher(inputs, self.objective.temperature)


class CapturedStep:
    """The same update recorded once and replayed: a small network's time is launches, and a replay has one.

    The first steps run as written; a batch of another shape does so at any time. So does a network that must wait for
    the device, to look at a number it computed: that cannot be recorded.
    """

    def __init__(self, step: Step) -> None:
        self.step, self.warm_up, self.is_possible = step, WARM_UP, True
        self.stream = _stream(step.fabric.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: Any, targets: Any, lr: float) -> Tensor:
        self.step.lr.fill_(lr)
        if not (self.is_possible and isinstance(inputs, Tensor) and isinstance(targets, Tensor)):
            return self._as_written(inputs, targets)
        if self.warm_up:
            self.warm_up -= 1
            return self._as_written(inputs, targets) if self.warm_up else self._watched(inputs, targets)
        if self.graph is None:
            self._capture(inputs, targets)
        if self.graph is None or (inputs.shape, targets.shape) != (self.inputs.shape, self.targets.shape):
            return self._as_written(inputs, targets)
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        self.graph.replay()
        return self.outcome.clone()

    def _as_written(self, inputs: Any, targets: Any) -> Tensor:
        """On the stream of the capture, since what libraries prepare may belong to a stream."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            outcome = self.step.update(inputs, targets)
        torch.cuda.current_stream().wait_stream(self.stream)
        return outcome

    def _watched(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """A step as written that sees whether it waits for the device: a failed capture leaves torch in disarray."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                outcome = self._as_written(inputs, targets)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        if any("called a synchronizing CUDA operation" in str(warning.message) for warning in caught):
            self._give_up("the network waits for the device")
        return outcome

    def _capture(self, inputs: Tensor, targets: Tensor) -> None:
        """Record the update without running it."""
        self.inputs, self.targets = inputs.clone(), targets.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            # Only this thread must keep still: a loader may pin memory in another.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.outcome = self.step.update(self.inputs, self.targets)
        except RuntimeError as error:
            self._give_up(str(error).splitlines()[0])
        else:
            self.graph = graph

    def _give_up(self, reason: str) -> None:
        sys.stderr.write(f"The step cannot be captured and runs as written: {reason}.\n")
        self.is_possible = False


def sgd(model: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.SGD:
    """Stochastic gradient descent on a network; the learning rate is a tensor on the device."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InvalidOption("No parameter of the network requires a gradient. Thaw what should be trained.")
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


def hits(outputs: Any, targets: Any) -> Tensor:
    """The share of labels that the largest output names; not a number where that means nothing."""
    comparable = isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.dim() > 1
    if not comparable or targets.is_floating_point() or outputs.shape[:1] + outputs.shape[2:] != targets.shape:
        device = targets.device if isinstance(targets, Tensor) else None
        return torch.full((), torch.nan, device=device)
    right: Tensor = outputs.detach().argmax(1) == targets
    return right.float().mean()


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
