"""Our batch norms in place of torch's while a network is trained in bf16 on one GPU.

Torch's batch norms take more than a quarter of a step of ResNet56 at half of its MACs
(benchmarks/results/train_speed_profile.txt).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from aacp.accelerate.kernels.loading import load_kernels
from aacp.accelerate.layers import is_supported_activation, is_supported_run, swapped
from aacp.accelerate.moments import partial_sums_for
from aacp.pytorch.modules import submodules

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class FastBatchNorm2d(nn.BatchNorm2d):
    """Torch's batch norm, with our kernels for the inputs that they accept."""

    def forward(self, input: Tensor) -> Tensor:
        is_supported = is_supported_norm(self) and is_supported_input(input, self.num_features)
        kernels = norm_kernels() if is_supported else None
        if kernels is None or (not self.training and torch.is_grad_enabled()):
            return super().forward(input)
        tensors = (self.weight, self.bias, self.running_mean, self.running_var)
        result: Tensor
        if self.training:
            partial = partial_sums_for(self, input)
            others = (self.num_batches_tracked, self.momentum, self.eps, kernels, partial)
            result = _Normalisation.apply(input, *tensors, *others)  # type: ignore[no-untyped-call]
        else:
            result = kernels.normalise_by(input, *tensors, self.eps)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle as torch's class, because this one is used during training only."""
        return object.__new__, (nn.BatchNorm2d,), self.__dict__


class _Normalisation(torch.autograd.Function):
    """Batch norm in training mode, which also updates the running statistics."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *others: Any) -> Tensor:
        *statistics, momentum, ctx.eps, ctx.kernels, partial = others
        settings = (float(momentum), float(ctx.eps), partial)
        y, mean, rstd = ctx.kernels.normalise(x, weight, bias, *statistics, *settings)
        torch.autograd.graph.increment_version(statistics)  # as torch does for every change in place
        ctx.save_for_backward(x, weight, mean, rstd)
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,) = gradients
        x, weight, mean, rstd = ctx.saved_tensors
        needed = ctx.needs_input_grad
        if torch.is_grad_enabled():  # this gradient will be differentiated, which only torch's operator supports
            given = (dy, x, weight, None, None, mean, rstd, True, ctx.eps, needed[:3])
            found = torch.ops.aten.native_batch_norm_backward(*given)
        else:
            found = ctx.kernels.differentiate(dy, x, weight, mean, rstd, needed[0])
        of_arguments = [*found, *[None] * (len(needed) - 3)]
        return tuple(value if is_needed else None for value, is_needed in zip(of_arguments, needed, strict=True))


def fast_norms(model: nn.Module, fabric: Fabric) -> AbstractContextManager[None]:
    """Give the network's batch norms our kernels while the context lasts, if they apply to the run."""
    norms = plain_batch_norms(model)
    is_used = norms and is_supported_run(model, fabric) and norm_kernels() is not None
    return swapped(norms if is_used else [], FastBatchNorm2d)


def plain_batch_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    """The batch norms of a network that are torch's own and not of a subclass."""
    return [module for module in submodules(model) if type(module) is nn.BatchNorm2d]


def is_supported_norm(norm: nn.BatchNorm2d) -> bool:
    """Whether a norm keeps running statistics, and holds everything in single precision."""
    if not norm.track_running_stats or norm.momentum is None or norm.num_batches_tracked is None:
        return False
    tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return all(
        t is not None and t.dtype == torch.float32 and t.shape == (norm.num_features,) and t.is_contiguous()
        for t in tensors
    )


def is_supported_input(x: Tensor, channels: int) -> bool:
    """Whether the kernels accept activations; a batch norm needs several values per channel."""
    return is_supported_activation(x, channels) and x.numel() > channels


def norm_kernels() -> ModuleType | None:
    """The kernels, if they run on this machine."""
    return load_kernels("aacp.accelerate.kernels.norms", "Training")
