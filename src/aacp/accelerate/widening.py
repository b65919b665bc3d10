"""Widening: train a network inside a wider one that suits the hardware, and take it out afterwards.

Tensor cores need channel counts in multiples of eight, which pruned networks rarely have. The wider network computes
and learns the same, which `aacp.accelerate.equivalence` checks first; only the time differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from aacp.accelerate.convolutions import fast_convolutions
from aacp.accelerate.equivalence import difference
from aacp.accelerate.growing import Growth, rounded_widths
from aacp.accelerate.norms import fast_norms
from aacp.data.examples import batch_size_of, moved
from aacp.errors import first_line
from aacp.graph.unverified import trace_unverified
from aacp.pytorch.internals import Convolution, pytree
from aacp.pytorch.modules import copy_module, has_external_references, submodules
from aacp.train.device_batches import DeviceBatches
from aacp.train.fabric import half_type
from aacp.train.loader_batches import LoaderBatches
from aacp.train.seeding import global_seed
from aacp.train.trained_as import State, TrainedAs, TrainedDirectly
from aacp.user.progress import report_progress

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MULTIPLE = 8  # channel counts in half precision for which cuDNN has tensor-core kernels are multiples of this
REPAID_AFTER = 2000  # steps: tracing and comparing take seconds, and a step gains a few milliseconds at most
EXAMPLES = 4  # training examples for the comparison; batch statistics of fewer would be poor


@dataclass(frozen=True)
class TrainedWider:
    """A wider network that is optimised in place of the user's."""

    network: nn.Module
    growth: Growth

    def own(self, state: State) -> State:
        return {name: self.growth.narrowed(name, tensor) for name, tensor in state.items()}

    def grown(self, state: State) -> State:
        return {name: self.growth.widened(name, tensor) for name, tensor in state.items()}


@contextmanager
def faster_network(
    model: nn.Module,
    source: DeviceBatches | LoaderBatches,
    fabric: Fabric,
    steps: int,
    is_replaceable: bool,
) -> Iterator[TrainedAs]:
    """The network to optimise for a model: a wider one if that is faster, with our layers where they apply.

    Args:
        model: the user's network, which has the trained weights after the context.
        source: the training data, of which a few examples are used to compare the two networks.
        fabric: the devices.
        steps: how many steps the run has.
        is_replaceable: whether another network may be optimised in place of the model.
    """
    chosen: AbstractContextManager[TrainedAs] = nullcontext(TrainedDirectly(model))
    is_long = is_worthwhile(steps, fabric)
    if is_replaceable and is_long:
        chosen = widened(model, example_inputs(source, fabric), fabric, MULTIPLE)
    with chosen as trained_as, fast_norms(trained_as.network, fabric), ExitStack() as stack:
        if is_long and source.has_one_shape:  # it takes seconds to compile the kernels for a shape
            stack.enter_context(fast_convolutions(trained_as.network, fabric))
        yield trained_as


def is_worthwhile(steps: int, fabric: Fabric) -> bool:
    """Whether a run has a GPU and half precision, and is long enough to repay the preparations."""
    is_faster = fabric.device.type == "cuda" and half_type(fabric) is not None
    return is_faster and steps >= REPAID_AFTER


@contextmanager
def widened(model: nn.Module, inputs: Any, fabric: Fabric, multiple: int) -> Iterator[TrainedAs]:
    """The network to optimise: a wider one if there is an equivalent one, and the model itself otherwise.

    Args:
        model: the user's network. After the context, and after an error in it, it has the weights of the wider one.
        inputs: a few examples to compare the two networks on.
        fabric: the devices; its first process decides for all.
        multiple: what widths are rounded up to a multiple of.
    """
    found = growth_for(model, inputs, multiple) if fabric.is_global_zero else None
    growth = fabric.broadcast(found)
    if isinstance(growth, str) and fabric.is_global_zero:
        report_progress(f"The network is trained in its own widths: {growth}.")
    if not isinstance(growth, Growth):
        yield TrainedDirectly(model)
        return
    wider = growth.grown(model)
    try:
        yield TrainedWider(wider, growth)
    finally:
        growth.write_back(wider, model)


def growth_for(model: nn.Module, inputs: Any, multiple: int) -> Growth | str:
    """The growth that makes as many widths as possible multiples of a number, or the reason why there is none."""
    convolutions = [layer for layer in submodules(model) if isinstance(layer, Convolution)]
    if not any(layer.out_channels % multiple for layer in convolutions):
        return f"they are multiples of {multiple}"
    if any(map(has_external_references, submodules(model))):
        return "it is compiled or has hooks, which refer to it"
    with torch.random.fork_rng(devices=[]):
        try:
            twin = copy_module(model).cpu()
            _, assembled, arguments = trace_unverified(twin, inputs, dtype=torch.float64)
            growth = Growth(twin, assembled.graph, rounded_widths(assembled.graph, multiple))
        except Exception as error:  # raised by the user's network or the tracer; training can do without widening
            return first_line(error)
        if growth.widths == tuple(assembled.graph.full):
            return "none of them can be widened"
        return difference(twin, growth, arguments) or growth


def example_inputs(source: DeviceBatches | LoaderBatches, fabric: Fabric) -> Any:
    """The inputs of a few training examples, on the CPU; None if there are none."""
    with global_seed(fabric.device, 0):
        inputs, _ = next(source.epoch(0), (None, None))
    if inputs is None:
        return None
    count = batch_size_of((inputs, None))

    def first_few(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:EXAMPLES] if tensor.dim() and len(tensor) == count else tensor

    return moved(pytree.tree_map_only(torch.Tensor, first_few, inputs), torch.device("cpu"))
