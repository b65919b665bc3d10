"""Mimicry: a pruned network learns to reproduce the outputs and features of the original, without labels."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aacp.data.batches import Batches
from aacp.data.examples import call, tensors_in
from aacp.errors import Diverged, InvalidData, InvalidOption, RunMismatch
from aacp.pytorch.gpus import multiplies_bf16
from aacp.pytorch.modules import evaluating, private_copy
from aacp.runs.files import RUN, WEIGHTS
from aacp.runs.folder import RunFolder
from aacp.runs.mending import mend
from aacp.train.checkpoint import Checkpoint
from aacp.train.optimisers import trained_parameters
from aacp.train.seeding import generator, global_seed
from aacp.train.trained_as import TrainedDirectly
from aacp.train.variants import varied
from aacp.user.progress import progress_bar, report_progress, without_progress
from aacp.user.values import score_text

# The highest learning rate, chosen in trials of 1,000 steps on held-out images: Adam with it brought MobileNetV2 closer
# to the original than SGD with the rate 0.03, and ResNet56 as close.
LR = 3e-4
BATCH_SIZE = 128  # images in a step
WARMUP = 0.05  # share of the steps during which the rate rises
SAVE_EVERY = 25  # steps between two states on disk
MAX_NORM = 1.0  # gradients are scaled down to this norm

Advance = Callable[[int, float], None]  # reports the number of finished steps and the loss of the last


@dataclass(frozen=True, eq=False)
class Features:
    """The inputs of a layer, which are compared besides the outputs of the network.

    Args:
        layer: the name of the layer, in the original and in the pruned network.
        dim: the dimension of its inputs that holds channels.
        kept: the positions of the channels that the pruned network keeps.
    """

    layer: str
    dim: int
    kept: Tensor


def mimic(
    network: nn.Module,
    original: nn.Module,
    images: Any,
    steps: int,
    *,
    features: Features | None = None,
    lr: float = LR,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Train a pruned network in place to compute what the original computes; labels are not needed.

    The loss is the squared error of the outputs and of the features, each over its variance, on variants of the images:
    mirrored, shifted and blended with each other. Batch norms keep the statistics that they have, since those of a few
    images would be worse. The rate follows a cosine to 0.

    Args:
        network: the pruned network, recalibrated or repaired.
        original: the unpruned network; it is not changed.
        images: a loader, a data set, tensors or Batches, whose labels are ignored.
        steps: how many batches of images to train on.
        features: a layer whose inputs are compared too.
        lr: the highest learning rate.
        seed: decides the order of the images.
        folder: where the state is saved; the same call with the same folder resumes.
        device: where to train.
    """
    if steps < 1:
        raise InvalidOption(f"A network cannot mimic another in {steps} steps. Give 1 or more.")
    place = torch.device(device)
    teacher = _Observed(private_copy(original, place).requires_grad_(False), features, is_original=True)
    pupil = _Observed(network.to(place), features, is_original=False)
    session = _Session(pupil, teacher, Batches.of(images, batch_size=BATCH_SIZE, device=place), steps, lr, seed)
    home = None if folder is None else RunFolder(folder)
    with evaluating(network), nullcontext() if home is None else home.lock():
        checkpoint = None if home is None else session.checkpoint(home)
        done = 0 if checkpoint is None else checkpoint.restore()
        with nullcontext() if done < steps else without_progress(), _progress(steps) as advance:
            session.run(done, checkpoint, advance)
    network.zero_grad(set_to_none=True)


class _Observed:
    """A network whose features are recorded in every call."""

    def __init__(self, network: nn.Module, features: Features | None, is_original: bool) -> None:
        self.network = network
        self._features = features
        self._kept = None if features is None or not is_original else features.kept

    def __call__(self, inputs: Any) -> list[Tensor]:
        """The outputs and then the features that both networks have, in single precision."""
        seen: list[Tensor] = []
        with self._recording(seen):
            outputs = tensors_in(call(self.network, inputs))
        found = [*outputs, *map(self._common, seen)]
        return [tensor.float() for tensor in found if tensor.is_floating_point()]

    def _recording(self, seen: list[Tensor]) -> AbstractContextManager[object]:
        if self._features is None:
            return nullcontext()
        layer = self.network.get_submodule(self._features.layer)
        return layer.register_forward_pre_hook(
            lambda _, arguments, named: seen.append(arguments[0] if arguments else named["input"]), with_kwargs=True
        )

    def _common(self, features: Tensor) -> Tensor:
        if self._kept is None or self._features is None:
            return features
        return features.index_select(self._features.dim, self._kept.to(features.device))


class _Session:
    """A pupil, its teacher, the images and the optimiser."""

    def __init__(self, pupil: _Observed, teacher: _Observed, images: Batches, steps: int, lr: float, seed: int) -> None:
        self.pupil = pupil
        self.teacher = teacher
        self.images = images
        self.steps = steps
        self.lr = lr
        self.seed = seed
        trained = trained_parameters(pupil.network)
        self.optimiser = torch.optim.Adam(trained, lr=lr, fused=images.device.type in ("cpu", "cuda"))

    def checkpoint(self, folder: RunFolder) -> Checkpoint:
        """The state on disk, in a folder that must not belong to mimicry with other settings."""
        mend(folder)
        request = {"steps": self.steps, "lr": self.lr, "seed": self.seed, "images": self.images.images}
        known = folder.read_json(RUN)
        if known is not None and known != request:
            raise RunMismatch(
                f"{folder.path} holds mimicry with other settings: {known} then, {request} now. Repeat those settings, "
                "or choose another folder."
            )
        folder.write_json(RUN, request)
        return Checkpoint(folder, TrainedDirectly(self.pupil.network), self.optimiser, unit="steps")

    def run(self, done: int, checkpoint: Checkpoint | None, advance: Advance) -> None:
        """All steps that are left."""
        device = self.images.device
        is_half = multiplies_bf16(device)
        for step, inputs in self._batches(done):
            with global_seed(device, self.seed, step), torch.autocast(device.type, torch.bfloat16, enabled=is_half):
                loss = self._loss(varied(inputs))
            self._update(loss, step)
            if (step + 1) % SAVE_EVERY == 0 or step + 1 == self.steps:
                advance(step + 1, self._read(loss, step))
                if checkpoint is not None:
                    checkpoint.write(step + 1)
        # An earlier call may have been killed between its last step and the weights.
        if checkpoint is not None and (done < self.steps or not (checkpoint.folder.path / WEIGHTS).exists()):
            checkpoint.write_weights(WEIGHTS)

    def _batches(self, done: int) -> Iterator[tuple[int, Any]]:
        """The number and the inputs of every step that is left; each pass over the images has its own order."""
        step = 0
        number = 0
        while step < self.steps:
            for inputs in self.images.shuffled(generator(self.seed, number)):
                if done <= step < self.steps:
                    yield step, inputs
                step += 1
            number += 1

    def _loss(self, inputs: Any) -> Tensor:
        """The squared error of every output and of the features over the variance that the original has there."""
        with torch.no_grad():
            expected = self.teacher(inputs)
        found = self.pupil(inputs)
        if [tensor.shape for tensor in found] != [tensor.shape for tensor in expected]:
            raise InvalidData(
                f"The pruned network computes outputs of shapes {[tuple(tensor.shape) for tensor in found]}, the "
                f"original {[tuple(tensor.shape) for tensor in expected]}. Prune without mimicry."
            )
        pairs = zip(found, expected, strict=True)
        return torch.stack([_relative_error(one, other) for one, other in pairs]).sum()

    def _update(self, loss: Tensor, step: int) -> None:
        warmup = max(1, round(WARMUP * self.steps))
        rate = 0.5 * self.lr * (1 + math.cos(math.pi * step / self.steps)) * min(1.0, (step + 1) / warmup)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.pupil.network.parameters(), MAX_NORM)
        self.optimiser.step()

    @staticmethod
    def _read(loss: Tensor, step: int) -> float:
        value = float(loss.detach())
        if not math.isfinite(value):
            raise Diverged(
                f"The loss of mimicry is {value} at step {step + 1}. Prune without it, or less, since the pruned "
                "network is too far from the original."
            )
        return value


def _relative_error(found: Tensor, expected: Tensor) -> Tensor:
    """The squared error over the squares of the expected values around the mean of each channel."""
    others = [dim for dim in range(expected.dim()) if dim != 1]
    variance = (expected - expected.mean(others, keepdim=True)).square().sum()
    return (found - expected).square().sum() / variance.clamp_min(torch.finfo(torch.float32).tiny)


@contextmanager
def _progress(steps: int) -> Iterator[Advance]:
    """A progress bar with the remaining time; without a terminal, a line for each tenth of the steps."""
    with progress_bar(steps, "mimicking") as update:
        if update is None:
            yield _Lines(steps)
        else:
            yield lambda done, loss: update(done, f"mimicking, loss {score_text(loss)}")


@dataclass
class _Lines:
    """Reports a line for each tenth of the steps."""

    steps: int
    tenths: int = 0

    def __call__(self, done: int, loss: float) -> None:
        if 10 * done // self.steps > self.tenths:
            self.tenths = 10 * done // self.steps
            report_progress(f"mimicking, step {done}/{self.steps}: loss {score_text(loss)}")
