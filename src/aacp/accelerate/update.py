"""Faster training steps on a GPU: teacher and student at once, half-precision copies of the weights, CUDA graphs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from aacp.accelerate.capture import CapturedUpdate
from aacp.accelerate.convolutions import FastConv2d, supported_convolutions
from aacp.accelerate.half_weights import HalfWeights
from aacp.accelerate.layers import share_with_teachers
from aacp.accelerate.norms import FastBatchNorm2d, plain_batch_norms
from aacp.pytorch.gpus import new_stream
from aacp.pytorch.modules import has_external_references, submodules
from aacp.train.fabric import half_type
from aacp.train.teaching import Teacher
from aacp.train.update import PlainUpdate, Update


@dataclass
class ConcurrentUpdate(PlainUpdate):
    """The plain update with the teacher on a CUDA stream of its own, and half-precision copies of the weights.

    The teacher's small kernels leave most of a GPU idle, so they run at the same time as the student's.
    """

    half_weights: HalfWeights | None = None
    teacher_stream: torch.cuda.Stream | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher is not None and self.fabric.device.type == "cuda":
            self.teacher_stream = new_stream(self.fabric.device)

    def ask(self, teacher: Teacher, inputs: Any) -> list[Any]:
        if self.teacher_stream is None:
            return super().ask(teacher, inputs)
        self.teacher_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.teacher_stream):
            return super().ask(teacher, inputs)

    def forward(self, inputs: Any) -> Any:
        outputs = super().forward(inputs) if self.half_weights is None else self.half_weights(inputs)
        if self.teacher_stream is not None:
            torch.cuda.current_stream().wait_stream(self.teacher_stream)
        return outputs

    def backward(self, loss: Tensor) -> None:
        super().backward(loss)
        if self.half_weights is not None:
            self.half_weights.pass_on_gradients()


def faster_update(plain: PlainUpdate, model: nn.Module) -> Update | None:
    """The fastest form of an update on its device; None on a device other than a CUDA GPU.

    The teacher's networks, which are copies, get our convolutions and batch norms if the student has them.

    Args:
        plain: the update as `aacp.train` builds it.
        model: its network, without the wrapper that `fabric.setup` puts around it.
    """
    if plain.fabric.device.type != "cuda":
        return None
    if plain.teacher is not None:
        share_with_teachers(model, plain.teacher.networks, FastConv2d, supported_convolutions)
        share_with_teachers(model, plain.teacher.networks, FastBatchNorm2d, plain_batch_norms)
    if not is_capturable(plain):
        return concurrent(plain, None)
    return CapturedUpdate(concurrent(plain, half_weights_for(plain, model)))


def is_capturable(plain: PlainUpdate) -> bool:
    """Whether a CUDA graph can hold the update.

    It cannot with several processes, loss scaling (float16), clipped gradients, or an optimiser other than SGD with its
    learning rate in a tensor: a graph would repeat the number that was the learning rate when it was recorded.
    """
    is_plain = plain.fabric.world_size == 1 and half_type(plain.fabric) is not torch.float16 and not plain.clip
    rates = [group["lr"] for group in plain.optimiser.param_groups]
    reads_tensor = isinstance(plain.optimiser, torch.optim.SGD) and all(isinstance(lr, Tensor) for lr in rates)
    return is_plain and reads_tensor


def concurrent(plain: PlainUpdate, half_weights: HalfWeights | None) -> ConcurrentUpdate:
    """The concurrent form of a plain update."""
    given = {each.name: getattr(plain, each.name) for each in fields(plain) if each.init}
    return ConcurrentUpdate(**given, half_weights=half_weights)


def half_weights_for(plain: PlainUpdate, model: nn.Module) -> HalfWeights | None:
    """Copies of the weights in the run's half precision, unless hooks or a compiler refer to the weights themselves."""
    half = half_type(plain.fabric)
    if half is None or any(map(has_external_references, submodules(model))):
        return None
    return HalfWeights(plain.model, half)
