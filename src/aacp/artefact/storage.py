"""Artefact: a pruned network as one safetensors file: the weights, and in the header how to get their shapes.

To load it, a fresh original is cut as the header says, and filled. Nothing is unpickled, and neither search nor
training nor report is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import Tensor, nn

from aacp.artefact.header import KEY, AppliedCut, Artefact, artefact_path
from aacp.channels import ChannelGraph
from aacp.errors import BrokenArtefact, GraphMismatch, InvalidOption
from aacp.graph.examples import from_plain, to_plain
from aacp.graph.shapes import expected_shapes, require_fit, stored_tensors, structure_of, tensors_of
from aacp.graph.slicing import passing_attributes, plain_attributes
from aacp.graph.surgery import Kept, shrink
from aacp.runs.folder import RunFolder
from aacp.structure import Structure


def save(
    pruned: nn.Module,
    graph: ChannelGraph,
    path: str | os.PathLike[str],
    *,
    kept: Kept | None = None,
    model: str | None = None,
    example: Any = None,
    metadata: Mapping[str, Any] | None = None,
    base: str | os.PathLike[str] | None = None,
) -> Artefact:
    """Write a pruned network and all that is needed to load it; the file appears as a whole or not at all.

    `graph` is the one the network was cut along, `kept` what `shrink` was told to keep: without it the counts are read
    off the shapes, and only which channels they were is lost. `model` is the name that `build_model` knows the
    original by, so that `load` needs no more than the path. `example` is recorded by its shapes, for exporters. Of a
    pruned network that was loaded from a file, traced and pruned again, `base` is that file.
    """
    earlier = None if base is None else Artefact.read(base)
    plain = None if example is None else to_plain(example)
    if graph.form == "exported" and plain is None:
        raise InvalidOption(
            'This graph was traced with form="exported", and such a network cannot be loaded without its example. '
            "Pass save the example it was traced on."
        )
    cut = _cut_of(pruned, graph, kept)
    artefact = Artefact(model, (cut,), plain, metadata)
    if earlier is not None:
        _require_base(earlier, graph)
        artefact = replace(
            artefact, model=model or earlier.model, cuts=(*earlier.cuts, cut), example=plain or earlier.example
        )
    content = serialised(_to_store(pruned, cut), {KEY: artefact.text()})
    path = Path(path)
    RunFolder(path.parent).write_bytes(path.name, content)
    return artefact


def load(path: str | os.PathLike[str], into: nn.Module | str | None = None) -> nn.Module:
    """The pruned network of a file, in evaluation mode, on the device of the original and in the file's precision.

    `into` is a fresh original, which is not touched, or the name of one; without it the name in the file is used. A
    name `package.module:function` is imported and called: give `into` for files that you do not trust.
    """
    path = artefact_path(path)
    artefact = Artefact.read(path)
    network = into if isinstance(into, nn.Module) else _original(path, into or artefact.model)
    for cut in artefact.cuts:
        _require_original(path, network, cut.graph)
        example = from_plain(artefact.example) if cut.graph.form == "exported" else None
        network = shrink(network, cut.graph, cut.kept, example=example)
    _fill(path, network, load_file(path))
    return network.eval()


def _cut_of(pruned: nn.Module, graph: ChannelGraph, kept: Kept | None) -> AppliedCut:
    """What is kept: as it was told, and checked, or read off the shapes."""
    if kept is None:
        return AppliedCut(graph, structure_of(pruned, graph))
    parts = np.split(graph.kept_units(kept), np.cumsum([group.width for group in graph.groups])[:-1])
    free = [part for part, group in zip(parts, graph.groups, strict=True) if group.frozen is None]
    channels = tuple(tuple(np.flatnonzero(part).tolist()) for part in free)
    structure = Structure(map(len, channels))
    require_fit(pruned, graph, structure)
    return AppliedCut(graph, structure, channels)


def _require_base(earlier: Artefact, graph: ChannelGraph) -> None:
    """Refuse a graph that was not traced from the network that the earlier file holds."""
    before = expected_shapes(earlier.graph, earlier.structure)
    for tensor in graph.tensors:
        if tensor.is_parameter and before.get(tensor.name) != tensor.shape:
            raise GraphMismatch(
                f"{tensor.name} has shape {_words(tensor.shape)} in the graph, but {_words(before.get(tensor.name))} "
                "in the base that is said to have been pruned further. Load the base, trace that network, prune it."
            )


def _to_store(pruned: nn.Module, cut: AppliedCut) -> dict[str, Tensor]:
    """The state of the network, and what else it holds of the shape the graph knows: a cache of another is left out."""
    stored, shapes = stored_tensors(pruned), expected_shapes(cut.graph, cut.structure)
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors_of(pruned).items()
        if name in stored or tuple(tensor.shape) == shapes.get(name)
    }


def _original(path: Path, name: str | None) -> nn.Module:
    if name is None:
        raise BrokenArtefact(
            f"{path} does not say how to build its network, only that its class is "
            f"{Artefact.read(path).cuts[0].graph.model}. Pass a fresh one: load(path, into=...)."
        )
    from aacp.zoo.models import build_model

    with torch.random.fork_rng(devices=[]):  # its first weights are thrown away: they shall not cost a random number
        return build_model(name)


def _require_original(path: Path, network: nn.Module, graph: ChannelGraph) -> None:
    """Refuse a network that the graph was not traced from."""
    if type(network).__name__ != graph.model:
        raise BrokenArtefact(
            f"{path} holds a pruned {graph.model}, but a {type(network).__name__} was given. "
            "Give a fresh network of the original class."
        )
    if any(tensor.is_meta for tensor in network.parameters()):
        raise InvalidOption(f"The {graph.model} is on the meta device and has no data to fill. Build it on the CPU.")
    found = {name: tuple(tensor.shape) for name, tensor in tensors_of(network).items()}
    known = {tensor.name: tensor.shape for tensor in graph.tensors}
    passing = passing_attributes(network, graph)
    for name in dict.fromkeys([*known, *found]):
        if found.get(name) != known.get(name) and name not in passing:
            raise BrokenArtefact(
                f"{name} has shape {_words(found.get(name))} in the {graph.model} that was given, but "
                f"{_words(known.get(name))} in the one that {path} was pruned from. Build the original as it was then."
            )


def _fill(path: Path, network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    own, stored = tensors_of(network), stored_tensors(network)
    attributes = plain_attributes(network) - stored
    for name in sorted((stored | set(weights)) - attributes):
        found = tuple(weights[name].shape) if name in weights else None
        wanted = tuple(own[name].shape) if name in own else None
        if found != wanted:
            raise BrokenArtefact(
                f"{name} has shape {_words(found)} in {path}, but {_words(wanted)} in the network cut as its header "
                "says. Write the file again with aacp.save."
            )
    device = next((tensor.device for tensor in own.values()), torch.device("cpu"))
    for name, tensor in weights.items():
        if name in own:
            own[name].data = tensor.to(own[name].device)
        else:  # an attribute that the network had made for itself, and a fresh one has not yet
            path_to, _, key = name.rpartition(".")
            setattr(network.get_submodule(path_to), key, tensor.to(device))


def _words(shape: tuple[int, ...] | None) -> str:
    return "none (there is no such tensor)" if shape is None else str(shape)
