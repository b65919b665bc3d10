"""Session: a network, its data, optimiser and teacher on a device, trained an epoch at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from aacp.accelerate.half_weights import Halves
from aacp.data.batches import Batches, batch_size_of, call
from aacp.data.scores import Score
from aacp.errors import Diverged, InvalidData, InvalidOption
from aacp.modules import evaluating, has_external_references
from aacp.runs.files import Epoch
from aacp.torch_internals import BatchNorm
from aacp.train.averaging import Average
from aacp.train.device_batches import DeviceBatches
from aacp.train.loader_batches import LoaderBatches, check_labels
from aacp.train.mixing import mixed
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.step import CapturedStep, Step, sgd
from aacp.train.teaching import Loss, Objective, Teacher, channels_last

CHECKED_EVERY = 100  # steps; reading a loss makes the device wait


class Session:
    """Everything one process needs to train a network; `fabric` says on what and with whom."""

    def __init__(
        self,
        model: nn.Module,
        source: DeviceBatches | LoaderBatches,
        recipe: Recipe,
        fabric: Fabric,
        teacher: Any = None,
        loss: Loss | None = None,
        capture: bool | None = None,
    ) -> None:
        device = fabric.device
        self.model, self.source, self.recipe, self.fabric = model, source, recipe, fabric
        self.is_classifier = loss is None
        model.to(device)
        if device.type == "cuda":
            channels_last(model)
        optimiser = sgd(model, recipe, device)
        self.average = Average(model, recipe.average) if recipe.average else None
        self.teacher = None if teacher is None else Teacher(teacher, device, half_type(fabric))
        wrapped, self.optimiser = fabric.setup(model, optimiser)
        self.step: Step | CapturedStep = Step(
            fabric, wrapped, self.optimiser, Objective(recipe, loss), self.teacher, self.average
        )
        if self._captures(capture):
            half = half_type(fabric)
            # Copies of weights that something from outside is tied to would be passed over by it.
            if half is not None and not any(map(has_external_references, model.modules())):
                self.step.halves = Halves(wrapped, half)
            self.step = CapturedStep(self.step)
        self._is_checked = False
        self._classes = 0  # known once a batch has been seen
        if isinstance(source, LoaderBatches) and has_batch_norm(model):
            source.least = 2

    @property
    def state(self) -> tuple[nn.Module, torch.optim.Optimizer, Average | None]:
        """What an epoch changes."""
        return self.model, self.optimiser, self.average

    def _captures(self, wanted: bool | None) -> bool:
        possible = (
            self.fabric.device.type == "cuda" and self.fabric.world_size == 1 and self.recipe.precision != "16-mixed"
        )
        if wanted and not possible:
            raise InvalidOption(
                f"capture=True needs one CUDA device and a precision without loss scaling, but this run is on "
                f"{self.fabric.world_size} x {self.fabric.device.type}. Leave capture out."
            )
        return possible and wanted is not False

    def run_epoch(self, number: int) -> Epoch:
        """Train for one epoch, counted from 0."""
        self.model.train()
        begun, seen, outcomes, chunk = time.perf_counter(), 0, torch.zeros(2), list[Tensor]()
        first = number * self.source.steps
        step = 0
        seeds = (self.recipe.seed, number, self.fabric.global_rank)
        with global_seed(self.fabric.device, *seeds), fastest_convolutions(isinstance(self.source, DeviceBatches)):
            for step, (inputs, targets) in enumerate(self.source.epoch(number)):
                self._check(inputs, targets)
                if self.recipe.mixing:
                    inputs, targets = mixed(inputs, targets, self._classes, self.recipe.mixing, self.recipe.mixture)
                chunk.append(self.step(inputs, targets, self.recipe.lr_at(first + step, self.source.steps)))
                seen += batch_size_of((inputs, targets)) * self.fabric.world_size
                if len(chunk) == CHECKED_EVERY:
                    outcomes += self._read(chunk, number, step)
                    chunk.clear()
        if chunk:
            outcomes += self._read(chunk, number, step)
        if not seen:
            raise InvalidData("The loader gave no batch to train on. Give more data or a smaller batch size.")
        return self._summary(number, step + 1, outcomes / (step + 1), seen, time.perf_counter() - begun)

    def _summary(self, number: int, steps: int, means: Tensor, seen: int, seconds: float) -> Epoch:
        loss, accuracy = (float(mean) for mean in means)
        lr = self.recipe.lr_at(number * self.source.steps + steps - 1, self.source.steps)
        known = None if accuracy != accuracy else round(accuracy, 6)
        return Epoch(number + 1, lr, round(loss, 6), known, None, round(seconds, 4), round(seen / seconds, 1))

    def _read(self, chunk: list[Tensor], epoch: int, last: int) -> Tensor:
        """The sums of losses and hits of some steps, over all processes; a loss that is no number ends the run."""
        values = torch.stack(chunk)
        if self.fabric.world_size > 1:
            reduced = self.fabric.all_reduce(values, reduce_op="mean")
            assert isinstance(reduced, Tensor)
            values = reduced
        values = values.cpu()
        strange = (~values[:, 0].isfinite()).nonzero()
        if len(strange):
            step = last + 1 - len(chunk) + int(strange[0])
            raise Diverged(
                f"The loss is {float(values[strange[0], 0])} at step {step + 1} of epoch {epoch + 1}. "
                "Lower the learning rate or lengthen the warm-up; a run folder keeps the state before this epoch."
            )
        return values.sum(0)

    def _check(self, inputs: Any, targets: Any) -> None:
        """Once, on the first batch: whether network, teacher and labels fit each other."""
        if self._is_checked:
            return
        self._is_checked = True
        share = batch_size_of((inputs, targets))
        if share == 1 and has_batch_norm(self.model):
            raise InvalidData("Batch norm has no statistics of one example. Use a batch size of 2 or more per process.")
        outputs = self._tried(self.model, inputs, "network")
        for teacher in [] if self.teacher is None else self.teacher.networks:
            shown = self._tried(teacher, inputs, "teacher")
            if _kind(shown) != _kind(outputs):
                raise InvalidData(
                    f"The teacher's outputs are of {_kind(shown)}, the network's of {_kind(outputs)}. "
                    "Give a teacher of the same classes."
                )
        if self.is_classifier:
            self._check_classes(outputs, targets)

    def _tried(self, network: nn.Module, inputs: Any, role: str) -> Any:
        """What a network says of a batch, without a trace of it being left."""
        try:
            with evaluating(network), torch.no_grad(), self.fabric.autocast():
                return call(network, inputs)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            raise InvalidData(
                f"The {role} does not run on a batch of {_kind(inputs)}: {str(error).splitlines()[0]}. "
                "Give data of the size and kind it is made for."
            ) from error

    def _check_classes(self, outputs: Any, targets: Any) -> None:
        if not isinstance(outputs, Tensor) or outputs.dim() < 2 or not isinstance(targets, Tensor):
            raise InvalidData(
                f"Cross-entropy needs outputs (n, classes, ...) and labels, but the network gives {_kind(outputs)} for "
                f"targets of type {type(targets).__name__}. Give a loss function of your own."
            )
        self._classes = outputs.shape[1]
        if isinstance(self.source, DeviceBatches):
            check_labels(self.source.images.labels, outputs.shape[1])
        elif not targets.is_floating_point():
            self.source.classes = outputs.shape[1]
            check_labels(targets[targets >= 0], outputs.shape[1])

    def evaluate(self, batches: Batches, score: Score) -> float:
        """The network, with averaged weights if they are kept, on held-out data."""
        averaged = nullcontext() if self.average is None else self.average.in_place()
        with averaged, evaluating(self.model), self.fabric.autocast():
            return float(score(self.model, batches))


@contextmanager
def fastest_convolutions(same_shapes: bool) -> Iterator[None]:
    """cuDNN times its algorithms once for every shape: worth it if batches have one, ruinous if they have many."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or same_shapes
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _kind(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, BatchNorm) for module in model.modules())


def half_type(fabric: Fabric) -> torch.dtype | None:
    """The type in which mixed precision multiplies, if the run has it."""
    with fabric.autocast():
        device = fabric.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
