"""What FastConv2d and FastBatchNorm2d share.

Both replace layers of torch while a network is trained in bf16 on one GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from aacp.pytorch.internals import is_compiled
from aacp.pytorch.modules import submodules
from aacp.train.fabric import half_type

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@contextmanager
def swapped(layers: Sequence[nn.Module], ours: type[nn.Module]) -> Iterator[None]:
    """Give layers of torch one of our classes while the context lasts."""
    originals = [type(layer) for layer in layers]
    for layer in layers:
        layer.__class__ = ours
    try:
        yield
    finally:
        for layer, original in zip(layers, originals, strict=True):
            layer.__class__ = original


def share_with_teachers(
    student: nn.Module,
    teachers: Iterable[nn.Module],
    ours: type[nn.Module],
    supported_layers: Callable[[nn.Module], Sequence[nn.Module]],
) -> None:
    """Give layers of teachers one of our classes permanently, if the student has layers of that class.

    Args:
        student: the network that is trained.
        teachers: copies of networks, used for nothing else.
        ours: the class.
        supported_layers: returns the layers of a network that can have this class.
    """
    if any(type(module) is ours for module in submodules(student)):
        for teacher in teachers:
            for layer in supported_layers(teacher):
                layer.__class__ = ours


def is_supported_run(model: nn.Module, fabric: Fabric) -> bool:
    """Whether a run can use our kernels: one GPU, bf16, and no compiled modules, which have kernels of their own."""
    is_one_gpu = fabric.device.type == "cuda" and fabric.world_size == 1
    return is_one_gpu and half_type(fabric) is torch.bfloat16 and not any(map(is_compiled, submodules(model)))


def is_supported_activation(x: Tensor, channels: int) -> bool:
    """Whether the kernels accept activations of a layer: bf16, on the current GPU, channels last."""
    fits_layer = x.dtype == torch.bfloat16 and x.dim() == 4 and x.shape[1] == channels
    is_channels_last = fits_layer and x.is_contiguous(memory_format=torch.channels_last)
    return is_channels_last and _is_on_current_gpu(x) and not torch.compiler.is_compiling()


def _is_on_current_gpu(x: Tensor) -> bool:
    return x.is_cuda and x.device.index == torch.cuda.current_device()
