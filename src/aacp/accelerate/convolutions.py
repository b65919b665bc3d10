"""Our 3x3 convolutions of few channels in place of cuDNN's while a network is trained in bf16 on one GPU.

On an H200, in batches of 128, cuDNN takes three to five times as long for 8 or 16 channels at 32 x 32 pixels, and 1.3
to 2.8 times as long for 16 to 32 channels at 16 x 16 and for 32 to 64 channels at 8 x 8. These numbers are from
benchmarks/results/convolution_speed.json.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from aacp.accelerate import moments
from aacp.accelerate.kernels.loading import load_kernels
from aacp.accelerate.late_gradients import LateGradients, late_gradients_of
from aacp.accelerate.layers import is_supported_activation, is_supported_run, swapped
from aacp.pytorch.modules import submodules

if TYPE_CHECKING:
    from lightning_fabric import Fabric

VECTOR = 8  # channels are multiples of this: one instruction loads 8 bfloat16 numbers
WIDEST = 64  # the most channels of a convolution
NARROW = 16  # the most channels for which the kernels are faster at any size
# The most elements of activations with more than NARROW channels: the kernels were always faster up to 2**20, and not
# always from 2**21 on.
LARGEST = 2**20
ADDRESSED = 2**31  # the kernels number fewer elements than this


class FastConv2d(nn.Conv2d):
    """Torch's 3x3 convolution, with our kernels for the inputs that they accept."""

    def forward(self, input: Tensor) -> Tensor:
        kernels = convolution_kernels() if is_supported_input(input, self.weight) else None
        if kernels is None:
            return super().forward(input)
        weight = self.weight.to(input.dtype)  # as autocast does
        late = late_gradients_of(weight)
        sums = moments.sums_for(self, input)
        result: Tensor = _Convolution.apply(input, weight, kernels, late, sums)  # type: ignore[no-untyped-call]
        moments.note_output(self, result, sums)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle as torch's class, because this one is used during training only."""
        return object.__new__, (nn.Conv2d,), self.__dict__


class _Convolution(torch.autograd.Function):
    """A 3x3 convolution with stride 1 and padding 1."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, kernels: Any, late: LateGradients | None, sums: moments.Sums | None
    ) -> Tensor:
        ctx.kernels, ctx.late = kernels, late
        ctx.save_for_backward(x, weight)
        result: Tensor
        if sums is None:
            result = kernels.convolve(x, weight)
        else:
            result, sums.partial = kernels.convolve_with_moments(x, weight, sums.shift)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,) = gradients
        x, weight = ctx.saved_tensors
        reaches_x, reaches_weight = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # this gradient will be differentiated, which only torch's operator supports
            one, wanted = [1, 1], [reaches_x, reaches_weight, False]
            found = torch.ops.aten.convolution_backward(dy, x, weight, None, one, one, one, False, [0, 0], 1, wanted)
            return found[0], found[1], None, None, None
        dy = dy.contiguous(memory_format=torch.channels_last)
        dweight = None
        if reaches_weight and ctx.late is not None:
            ctx.late.compute(weight, ctx.kernels.weight_gradient, x, dy)
        elif reaches_weight:
            dweight = ctx.kernels.weight_gradient(x, dy)
        dx = ctx.kernels.input_gradient(dy, weight) if reaches_x else None
        return dx, dweight, None, None, None


def fast_convolutions(model: nn.Module, fabric: Fabric) -> AbstractContextManager[None]:
    """Give the network's convolutions our kernels while the context lasts, if they apply to the run."""
    chosen = supported_convolutions(model)
    is_used = chosen and is_supported_run(model, fabric) and is_measured(fabric.device)
    return swapped(chosen if is_used and convolution_kernels() is not None else [], FastConv2d)


def supported_convolutions(model: nn.Module) -> list[nn.Conv2d]:
    """Torch's own convolutions in a network that the kernels can compute."""
    return [module for module in submodules(model) if type(module) is nn.Conv2d and is_supported_convolution(module)]


def is_supported_convolution(layer: nn.Conv2d) -> bool:
    """Whether the kernels can compute a convolution: 3x3, same size, no bias, no groups, few channels."""
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode)
    is_plain = layer.bias is None and settings == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros")
    return is_plain and all(n % VECTOR == 0 and n <= WIDEST for n in (layer.in_channels, layer.out_channels))


def is_supported_input(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels accept activations and are faster for them. The weight is bf16, or autocast converts it."""
    out_channels, in_channels = weight.shape[:2]
    is_half = weight.dtype == torch.bfloat16 or (weight.dtype == torch.float32 and _autocasts_to_bf16(x.device))
    is_supported_weight = is_half and weight.is_contiguous(memory_format=torch.channels_last)
    if not (is_supported_weight and is_supported_activation(x, in_channels)):
        return False
    widest = max(out_channels, in_channels)
    elements = x.numel() // in_channels * widest
    return 0 < elements <= LARGEST or (widest <= NARROW and 0 < elements < ADDRESSED)


def is_measured(device: torch.device) -> bool:
    """Whether a GPU is of the generation that the kernels were timed on; older ones have less memory for a tile."""
    return torch.cuda.get_device_capability(device)[0] == 9


def convolution_kernels() -> ModuleType | None:
    """The kernels, if they run on this machine."""
    return load_kernels("aacp.accelerate.kernels.convolutions", "Training")


def _autocasts_to_bf16(device: torch.device) -> bool:
    return torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) is torch.bfloat16
