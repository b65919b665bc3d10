"""Norms: torch's batch norms with kernels of our own while a network is trained in bf16 on one GPU.

Torch's take more than a quarter of a step of ResNet56 at half width (benchmarks/results/train_speed_profile.txt).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from aacp.accelerate.kernels.loading import tried
from aacp.torch_internals import is_compiled
from aacp.train.session import half_type


class QuickBatchNorm2d(nn.BatchNorm2d):
    """A batch norm that uses our kernels where they take its inputs, and is torch's in everything else."""

    def forward(self, input: Tensor) -> Tensor:
        kernels = our_kernels() if is_usual(self) and fits(input, self.num_features) else None
        if kernels is None:
            return super().forward(input)
        held = (self.weight, self.bias, self.running_mean, self.running_var, self.num_batches_tracked)
        settings = (self.momentum, self.eps, kernels)
        result: Tensor = _Normalisation.apply(input, *held, *settings)  # type: ignore[no-untyped-call]
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are torch's own, as this will be again."""
        return nn.BatchNorm2d, (self.num_features,), self.__dict__


class _Normalisation(torch.autograd.Function):
    """Batch norm in training mode, which also brings the running statistics up to date."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *others: Any) -> Tensor:
        *remembered, momentum, ctx.eps, ctx.kernels = others
        y, mean, rstd = ctx.kernels.normalise(x, weight, bias, *remembered, float(momentum), float(ctx.eps))
        torch.autograd.graph.increment_version(remembered)  # as after any change in place
        ctx.save_for_backward(x, weight, mean, rstd)
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,), (x, weight, mean, rstd), needed = gradients, ctx.saved_tensors, ctx.needs_input_grad
        if torch.is_grad_enabled():  # of a gradient that will be differentiated itself, which torch knows how to do
            given = (dy, x, weight, None, None, mean, rstd, True, ctx.eps, needed[:3])
            found = torch.ops.aten.native_batch_norm_backward(*given)
        else:
            found = ctx.kernels.differentiate(dy, x, weight, mean, rstd, needed[0])
        given_back = [*found, *[None] * (len(needed) - 3)]
        return tuple(value if is_needed else None for value, is_needed in zip(given_back, needed, strict=True))


@contextmanager
def quick_norms(model: nn.Module, fabric: Fabric) -> Iterator[None]:
    """A network whose batch norms have our kernels while the context lasts, if the run has a use for them."""
    norms = [module for module in model.modules() if type(module) is nn.BatchNorm2d]
    chosen = norms if norms and suits(model, fabric) and our_kernels() is not None else []
    for norm in chosen:
        norm.__class__ = QuickBatchNorm2d
    try:
        yield
    finally:
        for norm in chosen:
            norm.__class__ = nn.BatchNorm2d


def suits(model: nn.Module, fabric: Fabric) -> bool:
    """Whether a run is of the kind the kernels are made for: one GPU, bf16, and no compiler with kernels of its own."""
    is_alone = fabric.device.type == "cuda" and fabric.world_size == 1
    return is_alone and half_type(fabric) is torch.bfloat16 and not any(map(is_compiled, model.modules()))


def is_usual(norm: nn.BatchNorm2d) -> bool:
    """Whether a batch norm learns from its batch, keeps running statistics, and holds all in single precision."""
    if not norm.training or not norm.track_running_stats or norm.momentum is None or norm.num_batches_tracked is None:
        return False
    held = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return all(
        t is not None and t.dtype == torch.float32 and t.shape == (norm.num_features,) and t.is_contiguous()
        for t in held
    )


def fits(x: Tensor, channels: int) -> bool:
    """Whether the kernels take these activations: bf16 on the current GPU, channels last, more than one of each."""
    is_right = x.dtype == torch.bfloat16 and x.dim() == 4 and x.shape[1] == channels and x.numel() > channels
    is_in_order = is_right and x.is_contiguous(memory_format=torch.channels_last)
    return is_in_order and _is_here(x) and not torch.compiler.is_compiling()


def _is_here(x: Tensor) -> bool:
    return x.is_cuda and x.device.index == torch.cuda.current_device()


def our_kernels() -> ModuleType | None:
    """The kernels, if they run on this machine."""
    return tried("aacp.accelerate.kernels.norms", "Training")
