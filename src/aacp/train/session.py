"""Session: a network, its data, optimiser and teacher on a device, trained one epoch at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from aacp.acceleration import accelerated
from aacp.data.batches import Batches
from aacp.data.examples import batch_size_of, call
from aacp.data.scores import Score, scored
from aacp.errors import Diverged, InvalidData, UntraceableModel, first_line
from aacp.pytorch.internals import BatchNorm
from aacp.pytorch.layout import OF_VIEW, PLAIN, contiguous, faster_layout, guarded, lay_out, may_hide_tensors
from aacp.pytorch.modules import copy_module, cuda_devices, evaluating, submodules
from aacp.runs.scores import Epoch
from aacp.train.averaging import Average
from aacp.train.device_batches import DeviceBatches
from aacp.train.fabric import half_type
from aacp.train.loader_batches import LoaderBatches, check_targets
from aacp.train.mixing import mixed
from aacp.train.optimisers import lay_out_state, optimiser_for
from aacp.train.pace import Pace
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.teaching import Loss, Objective, Teacher
from aacp.train.update import PlainUpdate, Update

if TYPE_CHECKING:
    from lightning_fabric import Fabric

READ_EVERY = 100  # steps between two readings of the losses: each reading makes the processor wait for the device


class Session:
    """Everything that one process needs to train a network.

    Args:
        model: the network, which is moved to the fabric's device and changed in place.
        source: the training batches of this process.
        recipe: the settings.
        fabric: the device, the precision, and the other processes.
        teacher: the network or networks to imitate, if any.
        loss: the user's loss function; None for cross-entropy.
        accelerate: whether to use the update of `aacp.accelerate` where it applies.
    """

    def __init__(
        self,
        model: nn.Module,
        source: DeviceBatches | LoaderBatches,
        recipe: Recipe,
        fabric: Fabric,
        teacher: Any = None,
        loss: Loss | None = None,
        accelerate: bool = True,
    ) -> None:
        self.model = model
        self.source = source
        self.recipe = recipe
        self.fabric = fabric
        self.is_classifier = loss is None
        device = fabric.device
        self.layout = faster_layout(device)
        lay_out(model.to(device), self.layout)
        half = half_type(fabric)
        optimiser = optimiser_for(model, recipe, device, half)
        self.average = Average(model, recipe.average) if recipe.average else None
        self.teacher = None if teacher is None else Teacher(teacher, device, half)
        wrapped, self.optimiser = fabric.setup(model, optimiser)
        self.objective = Objective(recipe, loss)
        self._plain = PlainUpdate(
            fabric, wrapped, self.optimiser, self.objective, self.teacher, self.average, recipe.lr, recipe.clip or 0.0
        )
        self._accelerates = accelerate
        self.update = self._fastest_update()
        self._is_checked = False
        self._classes = 0  # the network's number of classes, known after the first batch
        if isinstance(source, LoaderBatches) and has_batch_norm(model):
            source.skip_batches_below(2)
        if isinstance(source, LoaderBatches) and recipe.mixing:
            source.reject_ignored()

    def _fastest_update(self) -> Update:
        faster: Update | None = accelerated("update_for", self._plain, self.model) if self._accelerates else None
        return faster or self._plain

    def run_epoch(self, number: int) -> Epoch:
        """Train for one epoch, counted from 0."""
        self.model.train()
        begun = time.perf_counter()
        totals = torch.zeros(2)  # the sums of the losses and of the shares of correct labels
        unread: list[Tensor] = []
        images = 0
        step = 0
        first = number * self.source.steps
        pace = Pace(self.fabric.device, getattr(self.source, "workers", None))
        seeds = (self.recipe.seed, number, self.fabric.global_rank)
        with global_seed(self.fabric.device, *seeds), fastest_convolutions(self.source.has_one_shape):
            for step, (inputs, targets) in enumerate(pace.waiting(self.source.epoch(number))):
                self._check(inputs, targets)
                if self.layout is PLAIN:
                    inputs = contiguous(inputs)
                if self.recipe.mixing:
                    inputs, targets = mixed(inputs, targets, self._classes, self.recipe.mixing, self.recipe.mixture)
                with pace.computing():
                    unread.append(self.update(inputs, targets, self.recipe.lr_at(first + step, self.source.steps)))
                images += batch_size_of((inputs, targets)) * self.fabric.world_size
                if len(unread) == READ_EVERY:
                    totals += self._read(unread, number, step)
                    unread.clear()
        if unread:
            totals += self._read(unread, number, step)
        if not images:
            raise InvalidData("The loader gave no batch to train on. Give more data or a smaller batch size.")
        seconds = time.perf_counter() - begun
        epoch = self._summary(number, step + 1, totals / (step + 1), images, seconds)
        return replace(epoch, limit=pace.limit(images / (step + 1)))

    def _summary(self, number: int, steps: int, means: Tensor, images: int, seconds: float) -> Epoch:
        loss, accuracy = (float(mean) for mean in means)
        is_known = accuracy == accuracy  # it is NaN if targets are not labels
        return Epoch(
            epoch=number + 1,
            lr=self.recipe.lr_at(number * self.source.steps + steps - 1, self.source.steps),
            loss=round(loss, 6),
            accuracy=round(accuracy, 6) if is_known else None,
            holdout=None,
            seconds=round(seconds, 4),
            images_per_second=round(images / seconds, 1),
        )

    def _read(self, unread: list[Tensor], epoch: int, last: int) -> Tensor:
        """The sums of losses and shares of correct labels over some steps; a loss that is not finite ends the run."""
        values = torch.stack(unread)
        if self.fabric.world_size > 1:
            reduced = self.fabric.all_reduce(values, reduce_op="mean")
            assert isinstance(reduced, Tensor)
            values = reduced
        values = values.cpu()
        diverged = (~values[:, 0].isfinite()).nonzero()
        if len(diverged):
            step = last + 1 - len(unread) + int(diverged[0])
            if not self.source.are_inputs_finite:
                raise InvalidData(
                    f"The training data hold inputs that are NaN or infinite, at step {step + 1} of epoch {epoch + 1} "
                    "or before. Remove these examples, or correct them."
                )
            raise Diverged(
                f"The loss is {float(values[diverged[0], 0])} at step {step + 1} of epoch {epoch + 1}. "
                "Lower the learning rate or lengthen the warm-up; a run folder keeps the state before this epoch."
            )
        return values.sum(0)

    def _check(self, inputs: Any, targets: Any) -> None:
        """Check on the first batch, and only there, that network, teacher and labels fit together."""
        if self._is_checked:
            return
        self._is_checked = True
        if batch_size_of((inputs, targets)) == 1 and has_batch_norm(self.model):
            raise InvalidData("Batch norm has no statistics of one example. Use a batch size of 2 or more per process.")
        try:
            outputs, answers = self._all_outputs(inputs)
            if self.layout is not PLAIN and (may_hide_tensors(outputs) or self._needs_contiguous(inputs)):
                self._use_plain_layout()
        except InvalidData:
            if self.layout is PLAIN:
                raise
            self._use_plain_layout()
            outputs, answers = self._all_outputs(contiguous(inputs))
        if self.is_classifier:
            self._check_classes(outputs, targets)
        if answers:
            self._check_answers(answers, outputs, targets)

    def _all_outputs(self, inputs: Any) -> tuple[Any, list[Any]]:
        """The outputs of the network for a batch, and those of each teacher.

        A copy of the network runs, whose attributes may change, and no random numbers of the epoch are drawn: the
        first step is the same as without this trial, in a resumed training too.
        """
        teachers = [] if self.teacher is None else self.teacher.networks
        with torch.random.fork_rng(cuda_devices(self.model)):
            outputs = self._outputs(self._copy(), inputs, "network")
            return outputs, [self._outputs(teacher, inputs, "teacher") for teacher in teachers]

    def _copy(self) -> nn.Module:
        """A copy of the network; the network itself if it cannot be copied."""
        with suppress(UntraceableModel):
            return copy_module(self.model)
        return self.model

    def _needs_contiguous(self, inputs: Any) -> bool:
        """Whether what runs in training mode alone may fail with the network's layout; a copy of it is tried."""
        try:
            with torch.random.fork_rng(cuda_devices(self.model)), torch.no_grad(), self.fabric.autocast():
                return may_hide_tensors(call(copy_module(self.model).train(), inputs))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of any other kind: the training step raises it too, or only the copy failed
            return OF_VIEW in str(error)

    def _use_plain_layout(self) -> None:
        """Return to the plain layout, which the code of some networks needs."""
        self.layout = PLAIN
        for network in (self.model, *([] if self.teacher is None else self.teacher.networks)):
            lay_out(network, PLAIN)
        lay_out_state(self.optimiser)
        if self.average is not None:
            self.average.follow(self.model)  # its tensors are new ones
        self.update = self._fastest_update()

    def _check_answers(self, answers: list[Any], outputs: Any, targets: Any) -> None:
        for taught in answers:
            if _kind(taught) != _kind(outputs):
                raise InvalidData(
                    f"The teacher's outputs are of {_kind(taught)}, the network's of {_kind(outputs)}. "
                    "Give a teacher of the same classes."
                )
        self.objective.look_at(outputs, targets)
        self.objective.taught(outputs, answers)  # rejects heads that cannot be compared

    def _outputs(self, network: nn.Module, inputs: Any, role: str) -> Any:
        """A network's outputs for a batch in evaluation mode, which changes nothing in the network."""
        try:
            with evaluating(network), torch.no_grad(), self.fabric.autocast():
                return call(network, inputs)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            raise InvalidData(
                f"The {role} does not run on a batch of {_kind(inputs)}: {first_line(error)}. "
                "Give data of the size and kind it is made for."
            ) from error

    def _check_classes(self, outputs: Any, targets: Any) -> None:
        if not isinstance(outputs, Tensor) or outputs.dim() < 2 or not isinstance(targets, Tensor):
            raise InvalidData(
                f"Cross-entropy needs outputs (n, classes, ...) and labels, but the network gives {_kind(outputs)} for "
                f"targets of type {type(targets).__name__}. Give a loss function of your own."
            )
        self._classes = outputs.shape[1]
        self.source.expect_classes(self._classes)
        check_targets(targets, self._classes)

    def evaluate(self, batches: Batches, score: Score) -> float:
        """The score of the network on held-out data, with the averaged weights if the recipe keeps them."""
        averaged = nullcontext() if self.average is None else self.average.in_place()
        with averaged, evaluating(self.model), guarded(self.model), self.fabric.autocast():
            return scored(score, self.model, batches, "held-out data")


@contextmanager
def fastest_convolutions(same_shapes: bool) -> Iterator[None]:
    """Let cuDNN time its algorithms for every new shape: worth it if all batches have one shape, slow otherwise."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or same_shapes
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, BatchNorm) for module in submodules(model))


def _kind(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
