"""save and load: a pruned network as one safetensors file with its weights and, in the header, how it was cut.

`load` builds the original network, cuts it as the header says, and fills in the weights. Nothing is unpickled, and
neither search nor training nor report is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aacp.artefact.header import COPY_AGAIN, KEY, AppliedCut, Artefact, artefact_path
from aacp.channels.graph import ChannelGraph, Kept
from aacp.channels.structure import Structure
from aacp.disk.reading import reading_as
from aacp.disk.tensors import tensor_bytes, tensors_in
from aacp.errors import BrokenArtefact, GraphMismatch, InvalidOption, failing_as
from aacp.graph.examples import from_plain, to_plain
from aacp.graph.shapes import expected_shapes, require_fit, stored_tensors, structure_of, tensors_of
from aacp.graph.slicing import passing_attributes, plain_attributes, size_in
from aacp.graph.surgery import shrink
from aacp.pytorch.modules import require_network, unwrapped
from aacp.runs.folder import RunFolder
from aacp.runs.manifest import MANIFEST
from aacp.runs.verification import is_whole
from aacp.user.values import described, path_text


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
    """Write a pruned network to a file; the file appears as a whole or not at all.

    Args:
        pruned: the network as `shrink` returned it, trained or not, also inside of DistributedDataParallel,
            torch.compile or AveragedModel.
        graph: the channel graph that it was cut along.
        path: the file to write.
        kept: what `shrink` was given to keep. It is stored, after its counts were compared with the shapes of the
            network. None is for networks that were cut elsewhere: the counts are then derived from the shapes, and
            which channels were kept is not recorded.
        model: the name of the original network, as `build_model` takes it; with it, `load` needs only the path.
        example: an input of the network; its shapes are recorded for exporters.
        metadata: anything that can be written as JSON, for your own use.
        base: the file of a pruned network that was loaded, traced and pruned again to get this one.

    Returns:
        The header of the file.
    """
    require_network(pruned, "The pruned network")
    pruned = unwrapped(pruned)
    earlier = None if base is None else Artefact.read(base)
    plain = None if example is None else to_plain(example)
    if graph.form == "exported" and plain is None:
        raise InvalidOption(
            'This graph was traced with form="exported", and such a network cannot be loaded without its example. '
            "Pass the example that it was traced on."
        )
    cut = _cut_of(pruned, graph, kept)
    artefact = Artefact(model, (cut,), plain, metadata)
    if earlier is not None:
        _require_base(earlier, graph)
        artefact = replace(
            artefact, model=model or earlier.model, cuts=(*earlier.cuts, cut), example=plain or earlier.example
        )
    content = tensor_bytes(_to_store(pruned, cut), {KEY: artefact.text()})
    place = Path(path_text("path", path))
    RunFolder(place.parent).write_bytes(place.name, content)
    return artefact


def load(path: str | os.PathLike[str], into: nn.Module | str | None = None, *, trust: bool = False) -> nn.Module:
    """Return the pruned network of a file, in evaluation mode and in the precision of the file.

    Args:
        path: a file that `save` wrote, or the folder of a run.
        into: a new original network, which is not changed, or the name of one, as `build_model` takes it. None uses
            the name in the file.
        trust: whether a name `package.module:function` in the file may be imported and called. Without it, such a name
            is rejected; the names of built-in networks need no trust.

    Returns:
        The network, on the device of the original.
    """
    path = artefact_path(path)
    _require_whole(path)
    artefact = Artefact.read(path)
    network = unwrapped(into) if isinstance(into, nn.Module) else _original(path, artefact, into, trust)
    with reading_as(BrokenArtefact):
        weights = tensors_in(path, COPY_AGAIN)
    # A header may be well formed and describe a cut that this network does not allow.
    what = f"The network cannot be cut as {path} says"
    with failing_as(BrokenArtefact, what, "Give the original, or another file."):
        for cut in artefact.cuts:
            _require_original(path, network, cut.graph)
            example = from_plain(artefact.example) if cut.graph.form == "exported" else None
            network = shrink(network, cut.graph, cut.kept, example=example)
        _fill(path, network, weights)
    return network.eval()


def _require_whole(path: Path) -> None:
    """Reject a file that is not what the manifest beside it lists; without a manifest, every file is accepted."""
    if not is_whole(path):
        raise BrokenArtefact(
            f"{path} is damaged: its checksum is not the one in {MANIFEST}. Repeat the command of its run, which "
            "writes it again."
        )


def _cut_of(pruned: nn.Module, graph: ChannelGraph, kept: Kept | None) -> AppliedCut:
    """Return the cut with the channels that were kept, after comparing their counts with the network's shapes.

    Without `kept`, the counts are solved for from the shapes: that is for networks that were cut elsewhere.
    """
    if kept is None:
        return AppliedCut(graph, structure_of(pruned, graph))
    channels = tuple(tuple(each.tolist()) for each in graph.kept_indices(graph.kept_units(kept)).values())
    structure = Structure(map(len, channels))
    require_fit(pruned, graph, structure)
    return AppliedCut(graph, structure, channels)


def _require_base(earlier: Artefact, graph: ChannelGraph) -> None:
    """Reject a graph that was not traced from the network in the earlier file."""
    before = expected_shapes(earlier.graph, earlier.structure)
    for tensor in graph.tensors:
        if tensor.is_parameter and before.get(tensor.name) != tensor.shape:
            raise GraphMismatch(
                f"{tensor.name} has shape {_words(tensor.shape)} in the graph, but {_words(before.get(tensor.name))} "
                "in the base. Load the base, trace that network, and prune it."
            )


def _to_store(pruned: nn.Module, cut: AppliedCut) -> dict[str, Tensor]:
    """Return the tensors to write: the state of the network, and attributes that have the shape of the graph.

    An attribute of another shape is a cache that the network has made while it ran, and is left out.
    """
    stored = stored_tensors(pruned)
    shapes = expected_shapes(cut.graph, cut.structure)
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors_of(pruned).items()
        if name in stored or tuple(tensor.shape) == shapes.get(name)
    }


def _original(path: Path, artefact: Artefact, given: str | None, trust: bool) -> nn.Module:
    """Return a new original network by the name that was given, or else by the one in the file."""
    if given is not None and not isinstance(given, str):
        raise InvalidOption(
            f"into is {described(given)}, not a network. Pass a new network, such as into=Net(), or a name."
        )
    name = given or artefact.model
    if name is None:
        raise BrokenArtefact(
            f"{path} does not say how to build its network, only that its class is "
            f"{artefact.cuts[0].graph.model}. Pass a new one: load(path, into=...), or --model "
            "package.module:function on the command line."
        )
    from aacp.zoo.models import build_model
    from aacp.zoo.trust import MODEL, require_trust

    if given is None:
        require_trust(path, [(MODEL, name)], trust)

    with torch.random.fork_rng(devices=[]):  # the initial weights are not used, so the random state must not change
        return build_model(name)


def _require_original(path: Path, network: nn.Module, graph: ChannelGraph) -> None:
    """Reject a network that the graph was not traced from."""
    if type(network).__name__ != graph.model:
        raise BrokenArtefact(
            f"{path} holds a pruned {graph.model}, but a {type(network).__name__} was given. "
            "Give a new network of the original class."
        )
    require_network(network, f"The {graph.model}")
    for size in graph.sizes:
        wanted = size.value(len(graph.lanes[size.lane]))
        number = size_in(network, size)
        if number != wanted:
            raise BrokenArtefact(
                f"{'.'.join(map(str, (size.module, *size.path)))} is {number} in the {graph.model} that was given, but "
                f"{wanted} in the one that {path} was pruned from. {_other_original(number > wanted)}"
            )
    found = {name: tuple(tensor.shape) for name, tensor in tensors_of(network).items()}
    known = {tensor.name: tensor.shape for tensor in graph.tensors}
    passing = passing_attributes(network, graph)
    for name in dict.fromkeys([*known, *found]):
        if found.get(name) != known.get(name) and name not in passing:
            raise BrokenArtefact(
                f"{name} has shape {_words(found.get(name))} in the {graph.model} that was given, but "
                f"{_words(known.get(name))} in the one that {path} was pruned from. "
                f"{_other_original(_is_wider(found.get(name), known.get(name)))}"
            )


def _is_wider(found: tuple[int, ...] | None, known: tuple[int, ...] | None) -> bool:
    """Whether a tensor of the first shape can be cut to the second."""
    both = found is not None and known is not None and len(found) == len(known)
    return both and all(size >= other for size, other in zip(found or (), known or (), strict=True))


def _other_original(is_wider: bool) -> str:
    """What to do about an original that differs from that of the file, and may be wider because that was pruned too."""
    if not is_wider:
        return "Build the original as it was built then, and give it unpruned."
    return (
        "If that one was itself the result of a pruning, load it from its own file first and give it as into; "
        "otherwise build the original as it was built then."
    )


def _fill(path: Path, network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Replace the tensors of a cut network by those of a file, after comparing their shapes."""
    own = tensors_of(network)
    stored = stored_tensors(network)
    attributes = plain_attributes(network) - stored
    for name in sorted((stored | set(weights)) - attributes):
        found = tuple(weights[name].shape) if name in weights else None
        wanted = tuple(own[name].shape) if name in own else None
        if found != wanted:
            raise BrokenArtefact(
                f"{name} has shape {_words(found)} in {path}, but {_words(wanted)} in the network that its header "
                "describes. Write the file again with aacp.save."
            )
    device = next((tensor.device for tensor in own.values()), torch.device("cpu"))
    for name, tensor in weights.items():
        if name in own:
            own[name].data = tensor.to(own[name].device)
        else:  # an attribute that a network makes when it first runs, and that a new one does not have yet
            module, _, key = name.rpartition(".")
            setattr(network.get_submodule(module), key, tensor.to(device))


def _words(shape: tuple[int, ...] | None) -> str:
    return "none (there is no such tensor)" if shape is None else str(shape)
