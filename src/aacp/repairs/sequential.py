"""Sequential repair: fit a cut network layer after layer to what the original computes, without labels or training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.elements import Tensor
from aacp.channels.graph import ChannelGraph
from aacp.channels.lanes import stays
from aacp.data.batches import Batches
from aacp.data.examples import batch_size_of, narrowed, tensors_in
from aacp.data.memory import free_memory
from aacp.errors import InvalidData, InvalidStructure
from aacp.graph.shapes import tensors_of
from aacp.graph.slicing import require_match
from aacp.graph.unverified import evaluation_copy
from aacp.pytorch.internals import pytree
from aacp.pytorch.modules import device_of_model, named_tensors, positional, require_network
from aacp.repairs.lockstep import LockStep
from aacp.repairs.products import labelled_program

MEMORY_SHARE = 0.7  # share of the free memory that both runs may take


def repair(
    network: nn.Module,
    original: nn.Module,
    graph: ChannelGraph,
    kept: Mapping[str, NDArray[np.int64]],
    images: Any,
) -> tuple[str, ...]:
    """Fit the weights of a cut network, in place, to what the original computes on images; labels are not needed.

    The layers are fitted by least squares in the order of execution, each with the inputs that it has in the cut
    network. Batch norms get the statistics of what reaches them, without any change of what they compute, so that the
    network can be trained afterwards; do not recalibrate it.

    Args:
        network: the cut network; its weights are the start.
        original: the unpruned network; it is not changed.
        graph: the channel graph of the original.
        kept: the indices of the units that each free group keeps, by the group's name.
        images: a loader, a data set, tensors or Batches, all of one shape: 256 images are few, 1,000 are good.

    Returns:
        Notes: what was left as inherited and why, and where there were few images or too little memory.
    """
    require_network(network, "The pruned network")
    require_network(original, "The original")
    units = graph.kept_units(kept)
    require_match(original, graph)
    pieces = _Pieces(network, graph, units)
    inputs = _inputs(images, device_of_model(original))
    if units.all():
        return ()
    notes: list[str] = []
    with torch.no_grad():
        count = whole = batch_size_of(inputs)
        while True:
            pruned = evaluation_copy(original)
            pieces.scatter(pruned)
            taken = narrowed(inputs, 0, count, whole)
            steps = LockStep(labelled_program(original, graph, taken), original, pruned, units)
            fitting = _fitting_images(steps, count, device_of_model(original))
            try:
                if fitting == count:
                    notes += steps.run(list(tensors_in(positional(original, taken))))
                    break
            except torch.OutOfMemoryError:
                if count == 1:
                    raise
                fitting = count // 2
            count = fitting
        if count < whole:
            notes.append(f"There was too little memory for {whole} images: {count} of them were used.")
        pieces.gather(pruned)
    return tuple(notes)


# -- images -----------------------------------------------------------------------------------------------------------


def _inputs(images: Any, device: torch.device) -> Any:
    """All images as one batch of inputs."""
    batches = Batches.of(images, device=device)
    joined = list(Batches.of(batches, batch_size=batches.images, device=device).inputs())
    if len(joined) > 1:
        raise InvalidData("The images have several shapes, but repair needs one. Give images of one shape.")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors_in(joined[0])):
        raise InvalidData("The images are not finite. Look for NaN and infinity in them.")
    return _shuffled(joined[0])


def _shuffled(inputs: Any) -> Any:
    """The images in a random order that is always the same.

    Data sets are often sorted by class. Ridges are compared on the last images, and a lack of memory leaves only the
    first ones: both must be like all the others.
    """
    whole = batch_size_of(inputs)
    order = torch.randperm(whole, generator=torch.Generator().manual_seed(0))

    def mixed(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[order.to(tensor.device)] if tensor.dim() and len(tensor) == whole else tensor

    return pytree.tree_map_only(torch.Tensor, mixed, inputs)


def _fitting_images(steps: LockStep, count: int, device: torch.device) -> int:
    """How many of the images fit into memory: too little of it is an error on a GPU, but ends the process on a CPU."""
    if device.type != "cpu":
        return count
    room = MEMORY_SHARE * free_memory(device)
    needed = steps.peak_bytes()
    return count if needed <= room else max(1, min(count - 1, int(count * room / needed)))


# -- weights ----------------------------------------------------------------------------------------------------------


class _Pieces:
    """The tensors of a cut network as pieces of those of the original."""

    def __init__(self, network: nn.Module, graph: ChannelGraph, units: NDArray[np.bool_]) -> None:
        self._small = tensors_of(network)
        known = {tensor.name: tensor for tensor in graph.tensors}
        self._places = {name: _places(graph, known[name], units) for name in self._small if name in known}
        for name, places in self._places.items():
            shape = tuple(place.numel() for place in places)
            if shape != tuple(self._small[name].shape):
                raise InvalidStructure(
                    f"{name} has shape {tuple(self._small[name].shape)} in the cut network, but {shape} if the given "
                    "units are kept. Give the units that the network was cut with."
                )

    def scatter(self, whole: nn.Module) -> None:
        """Write the pieces into a network of the original's shapes."""
        for name, value in named_tensors(whole):
            if name in self._places:
                value.data[self._places[name]] = self._small[name].detach().to(value.device)

    def gather(self, whole: nn.Module) -> None:
        """Read the pieces from a network of the original's shapes."""
        for name, value in named_tensors(whole):
            if name in self._places:
                self._small[name].data.copy_(value[self._places[name]])


def _places(graph: ChannelGraph, tensor: Tensor, units: NDArray[np.bool_]) -> tuple[torch.Tensor, ...]:
    """The index of every kept element of a tensor, dimension by dimension, in shapes that broadcast."""
    places: list[torch.Tensor] = []
    for dim, lane in enumerate(tensor.lanes):
        left = np.ones(tensor.shape[dim], dtype=bool) if lane is None else stays(graph.lanes[lane], units)
        shape = [1] * len(tensor.lanes)
        shape[dim] = -1
        places.append(torch.from_numpy(np.flatnonzero(left)).reshape(shape))
    return tuple(places)
