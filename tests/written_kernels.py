"""The computations of our Triton kernels in torch, which run anywhere, and small networks for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train.small_data import CLASSES


class WrittenConvolutions:
    """The kernels' computations in torch, which count how often they are called and cannot be differentiated."""

    def __init__(self) -> None:
        self.forward, self.inputs, self.weights = 0, 0, 0

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        self.forward += 1
        assert x.dtype == weight.dtype == torch.bfloat16
        return F.conv2d(x, weight, padding=1)

    @torch.no_grad()
    def input_gradient(self, dy: Tensor, weight: Tensor) -> Tensor:
        self.inputs += 1
        return torch.nn.grad.conv2d_input((len(dy), weight.shape[1], *dy.shape[2:]), weight, dy, padding=1)

    @torch.no_grad()
    def weight_gradient(self, x: Tensor, dy: Tensor) -> Tensor:
        self.weights += 1
        return torch.nn.grad.conv2d_weight(x, (dy.shape[1], x.shape[1], 3, 3), dy, padding=1)


class WrittenNorms:
    """The kernels' computations in torch, which count how often they are called."""

    def __init__(self) -> None:
        self.forward, self.backward, self.evaluated = 0, 0, 0

    def normalise_by(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
        self.evaluated += 1
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    def normalise(self, x: Tensor, weight: Tensor, bias: Tensor, mean, var, batches, momentum, eps, partial=None):  # type: ignore[no-untyped-def]
        self.forward += 1
        assert partial is None
        batches += 1
        return torch.native_batch_norm(x, weight, bias, mean, var, True, momentum, eps)

    def differentiate(self, dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, reaches_x: bool):  # type: ignore[no-untyped-def]
        self.backward += 1
        given = (dy, x, weight, None, None, mean, rstd, True, 1e-5, [reaches_x, True, True])
        return torch.ops.aten.native_batch_norm_backward(*given)


def in_order(*sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sizes, generator=generator).bfloat16().contiguous(memory_format=torch.channels_last)


def convolution(inputs: int = 8, outputs: int = 16, **options: Any) -> nn.Conv2d:
    torch.manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, 3, **{"padding": 1, "bias": False, **options})
    return layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def wide_network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        convolution(),
        nn.BatchNorm2d(16),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
