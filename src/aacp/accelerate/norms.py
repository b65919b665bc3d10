"""Our batch norms in place of torch's while a network is trained in bf16 on one GPU.

Torch's take more than a quarter of a step of ResNet56 at half width (benchmarks/results/train_speed_profile.txt).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from aacp.accelerate.kernels.loading import load_kernels
from aacp.pytorch.internals import is_compiled
from aacp.train.fabric import half_type

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class FastBatchNorm2d(nn.BatchNorm2d):
    """Torch's batch norm, with our kernels for the inputs that they accept."""

    def forward(self, input: Tensor) -> Tensor:
        kernels = norm_kernels() if is_supported_norm(self) and is_supported_input(input, self.num_features) else None
        if kernels is None:
            return super().forward(input)
        tensors = (self.weight, self.bias, self.running_mean, self.running_var, self.num_batches_tracked)
        settings = (self.momentum, self.eps, kernels)
        result: Tensor = _Normalisation.apply(input, *tensors, *settings)  # type: ignore[no-untyped-call]
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle as torch's class, because this one is used during training only."""
        return nn.BatchNorm2d, (self.num_features,), self.__dict__


class _Normalisation(torch.autograd.Function):
    """Batch norm in training mode, which also updates the running statistics."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *others: Any) -> Tensor:
        *statistics, momentum, ctx.eps, ctx.kernels = others
        y, mean, rstd = ctx.kernels.normalise(x, weight, bias, *statistics, float(momentum), float(ctx.eps))
        torch.autograd.graph.increment_version(statistics)  # as torch does for every change in place
        ctx.save_for_backward(x, weight, mean, rstd)
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,) = gradients
        x, weight, mean, rstd = ctx.saved_tensors
        needed = ctx.needs_input_grad
        if torch.is_grad_enabled():  # the gradient will be differentiated in turn, which only torch's operator supports
            given = (dy, x, weight, None, None, mean, rstd, True, ctx.eps, needed[:3])
            found = torch.ops.aten.native_batch_norm_backward(*given)
        else:
            found = ctx.kernels.differentiate(dy, x, weight, mean, rstd, needed[0])
        of_arguments = [*found, *[None] * (len(needed) - 3)]
        return tuple(value if is_needed else None for value, is_needed in zip(of_arguments, needed, strict=True))


@contextmanager
def fast_norms(model: nn.Module, fabric: Fabric) -> Iterator[None]:
    """Give the network's batch norms our kernels while the context lasts, if they apply to the run."""
    norms = [module for module in model.modules() if type(module) is nn.BatchNorm2d]
    chosen = norms if norms and is_supported_run(model, fabric) and norm_kernels() is not None else []
    for norm in chosen:
        norm.__class__ = FastBatchNorm2d
    try:
        yield
    finally:
        for norm in chosen:
            norm.__class__ = nn.BatchNorm2d


def is_supported_run(model: nn.Module, fabric: Fabric) -> bool:
    """Whether the kernels are made for a run: one GPU, bf16, and no compiler, which has kernels of its own."""
    is_one_gpu = fabric.device.type == "cuda" and fabric.world_size == 1
    return is_one_gpu and half_type(fabric) is torch.bfloat16 and not any(map(is_compiled, model.modules()))


def is_supported_norm(norm: nn.BatchNorm2d) -> bool:
    """Whether a norm uses batch statistics, updates running statistics, and holds everything in single precision."""
    if not norm.training or not norm.track_running_stats or norm.momentum is None or norm.num_batches_tracked is None:
        return False
    tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return all(
        t is not None and t.dtype == torch.float32 and t.shape == (norm.num_features,) and t.is_contiguous()
        for t in tensors
    )


def is_supported_input(x: Tensor, channels: int) -> bool:
    """Whether the kernels accept activations: bf16, on the current GPU, channels last, several values per channel."""
    is_right = x.dtype == torch.bfloat16 and x.dim() == 4 and x.shape[1] == channels and x.numel() > channels
    is_in_order = is_right and x.is_contiguous(memory_format=torch.channels_last)
    return is_in_order and _is_on_current_gpu(x) and not torch.compiler.is_compiling()


def _is_on_current_gpu(x: Tensor) -> bool:
    return x.is_cuda and x.device.index == torch.cuda.current_device()


def norm_kernels() -> ModuleType | None:
    """The kernels, if they run on this machine."""
    return load_kernels("aacp.accelerate.kernels.norms", "Training")
