"""Widening: a network trained inside a wider one that suits the hardware, and taken out of it afterwards.

Tensor cores want channels in multiples of eight, and a pruned network has what is left. The wider network computes and
learns the same (`aacp.accelerate.equivalence` makes sure of it), so that only the time it takes is another.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from aacp.accelerate.equivalence import difference
from aacp.accelerate.growing import Growth, rounded_widths
from aacp.data.batches import batch_size_of, moved
from aacp.errors import InvalidOption, first_line
from aacp.graph.unverified import trace_unverified
from aacp.modules import copy_module, has_external_references
from aacp.torch_internals import Convolution, pytree
from aacp.train.device_batches import DeviceBatches
from aacp.train.loader_batches import LoaderBatches
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.session import half_type

MULTIPLE = 8  # of channels in half precision, for which cuDNN has kernels on tensor cores
REPAID_AFTER = 2000  # steps: tracing and comparing take seconds, and a step gains a few milliseconds at most
EXAMPLES = 4  # to compare on: of fewer, statistics would be poor


@dataclass(frozen=True)
class TrainedAs:
    """The network that is trained in a model's stead: the model itself, or a wider one."""

    trained: nn.Module
    growth: Growth | None = None


def is_worthwhile(recipe: Recipe, source: DeviceBatches | LoaderBatches, fabric: Fabric) -> bool:
    """Whether a run would be faster with networks made for the hardware, and lasts long enough to look for them."""
    is_faster = fabric.device.type == "cuda" and half_type(fabric) is not None
    return is_faster and recipe.epochs * source.steps >= REPAID_AFTER


def multiple_of(widen: int | None, is_of_use: bool) -> int:
    """What widths are rounded up to: as asked, or 8 where that is of use; 1 leaves them alone."""
    if widen is not None and widen < 1:
        raise InvalidOption(f"widen is {widen}, but widths are multiples of 1 or more. Give 8, or 1 for none.")
    return widen if widen is not None else MULTIPLE if is_of_use else 1


@contextmanager
def widened(model: nn.Module, inputs: Any, fabric: Fabric, multiple: int, verbose: bool = False) -> Iterator[TrainedAs]:
    """What to train for a model, which has its weights in the end, whatever that is."""
    # One process decides for all, as they must agree.
    found = growth_for(model, inputs, multiple) if fabric.is_global_zero and multiple > 1 else None
    growth = fabric.broadcast(found)
    if isinstance(growth, str) and verbose and fabric.is_global_zero:
        sys.stderr.write(f"The network is trained in its own widths: {growth}.\n")
    if not isinstance(growth, Growth):
        yield TrainedAs(model)
        return
    stand_in = TrainedAs(growth.grown(model), growth)
    try:
        yield stand_in
    finally:
        growth.write_back(stand_in.trained, model)


def growth_for(model: nn.Module, inputs: Any, multiple: int, *, learns: bool = True) -> Growth | str:
    """The growth that makes as many widths as can be multiples of a number, or in words why there is none."""
    if not any(layer.out_channels % multiple for layer in model.modules() if isinstance(layer, Convolution)):
        return f"they are multiples of {multiple}"
    if any(map(has_external_references, model.modules())):
        return "it is compiled or has hooks, which might know it"
    with torch.random.fork_rng(devices=[]):
        try:
            twin = copy_module(model).cpu()
            _, assembled, arguments = trace_unverified(twin, inputs, dtype=torch.float64)
            growth = Growth(twin, assembled.graph, rounded_widths(assembled.graph, multiple))
        except Exception as error:  # whatever the network or the tracer raises: if it matters, training will tell
            return first_line(error)
        if growth.widths == tuple(assembled.graph.full):
            return "none of them can be widened"
        return difference(twin, growth, arguments, learns=learns) or growth


def examples(source: DeviceBatches | LoaderBatches, fabric: Fabric) -> Any:
    """The inputs of a few training examples, on the CPU; None if there are none."""
    with global_seed(fabric.device, 0):
        inputs, _ = next(source.epoch(0), (None, None))
    if inputs is None:
        return None
    count = batch_size_of((inputs, None))

    def few(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:EXAMPLES] if tensor.dim() and len(tensor) == count else tensor

    return moved(pytree.tree_map_only(torch.Tensor, few, inputs), torch.device("cpu"))
