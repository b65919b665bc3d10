"""Sensitivity: how much an error in the output of each product changes what the network returns.

Errors of different products become comparable by it: an error in a branch that adds little to a residual stream counts
little. It comes from one backward pass over a few images, without labels: with random signs v, the squared gradients of
v'f(x) have the squared Jacobian of the outputs f as their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import fx, nn

from aacp.channels.graph import ChannelGraph
from aacp.data.batches import Batches
from aacp.data.examples import batch_size_of, tensors_in
from aacp.graph.masking import MaskedRun
from aacp.graph.units import UnitProgram
from aacp.pytorch.modules import positional
from aacp.repairs.products import Product, Programs

IMAGES = 128  # the number of images that gradients are averaged over
BATCH_SIZE = 32  # a backward pass keeps all activations of its images

Sensitivities = dict[str, torch.Tensor]  # (groups, outputs) for each product, by the name of its weight


def sensitivities(model: nn.Module, graph: ChannelGraph, images: Batches) -> Sensitivities:
    """For each output channel of each product: the relative error of the network's outputs per squared error there.

    Errors at different positions count as independent. The result is to be multiplied by the mean squared error over
    positions and images, and added up over channels; 1 is an error as large as the variance of the outputs.

    Args:
        model: the network, in evaluation mode; it is not changed.
        graph: its channel graph.
        images: what it is run on; IMAGES of them are drawn at random, because data sets are often sorted by class.
    """
    generator = torch.Generator().manual_seed(0)  # of the images and of the random signs
    drawn = Batches.of(images, batch_size=BATCH_SIZE, device=images.device).shuffled(generator)
    outputs: list[list[torch.Tensor]] = []
    squares: Sensitivities = {}
    count = 0
    programs = Programs(model, graph)
    for inputs in islice(drawn, IMAGES // BATCH_SIZE):
        labelled, products, _ = programs.of(inputs)
        with torch.enable_grad():
            results, found = _gradients(model, labelled, products, tensors_in(positional(model, inputs)), generator)
        outputs.append([result.detach() for result in results])
        count += batch_size_of(inputs)
        for name, square in found.items():
            squares[name] = squares[name] + square if name in squares else square
    scale = count * _variance(outputs)
    return {name: square / scale for name, square in squares.items()} if scale > 0 else {}


def _gradients(
    model: nn.Module,
    labelled: UnitProgram,
    products: Sequence[Product],
    inputs: Sequence[torch.Tensor],
    generator: torch.Generator,
) -> tuple[list[torch.Tensor], Sensitivities]:
    """The results of the network, and the squared gradients of their random sum, summed over positions and images."""
    run = _ProbedRun(labelled, [product.node for product in products])
    copies = [tensor.clone() for tensor in inputs]
    results = [
        result
        for result in run(model, copies)
        if result.is_floating_point() and result.requires_grad and result.dim()  # not a loss: it is not of one image
    ]
    if not results:
        return [], {}
    signs = [2 * torch.randint(0, 2, result.shape, generator=generator) - 1 for result in results]
    total = sum((result * sign.to(result)).sum() for result, sign in zip(results, signs, strict=True))
    probes = [run.probes[product.node] for product in products]
    gradients = torch.autograd.grad(total, probes, allow_unused=True)  # type: ignore[arg-type]
    found: Sensitivities = {}
    for product, gradient in zip(products, gradients, strict=True):
        if gradient is not None:
            channels = gradient.double().square().movedim(product.channel_dim, 0).flatten(1).sum(dim=1)
            found[product.weight] = channels.reshape(product.groups, -1)
    return results, found


class _ProbedRun(MaskedRun):
    """A run of the whole network that keeps the outputs of some calls, to differentiate by them."""

    def __init__(self, labelled: UnitProgram, nodes: Sequence[fx.Node]) -> None:
        super().__init__(labelled.propagation, labelled.all_ids)
        self.probes: dict[fx.Node, torch.Tensor] = {}
        self._probed = set(nodes)

    def step(self, node: fx.Node) -> Any:
        result = super().step(node)
        if node in self._probed:
            self.probes[node] = result if result.requires_grad else result.requires_grad_()
            self._values[node] = result.clone()  # a call that writes into it must not change the probe
        return result


def _variance(outputs: list[list[torch.Tensor]]) -> float:
    """The variance of the outputs over images, summed over all of their elements.

    Images of several sizes may give outputs of several shapes: each image is then compared with those of its shape.
    """
    total = 0.0
    for parts in zip(*outputs, strict=True):
        by_shape: dict[torch.Size, list[torch.Tensor]] = {}
        for part in parts:
            by_shape.setdefault(part.shape[1:], []).append(part.double())
        squares = 0.0
        for alike in by_shape.values():
            values = torch.cat(alike)
            squares += float((values - values.mean(dim=0)).square().sum())
        total += squares / sum(map(len, parts))
    return total
