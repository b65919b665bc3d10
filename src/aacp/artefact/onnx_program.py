"""A network as an ONNX file by torch's exporter, with a free batch size, height and width where the network permits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aacp.data.examples import tensors_in
from aacp.errors import ExportFailed, first_line
from aacp.graph.examples import FlatNetwork, batch_of, with_batch, with_more
from aacp.pytorch.internals import quiet_export

SINGLE_FILE_BYTES = 2**31 - 2**24  # protocol buffers are limited to 2 GB; larger weights go to a second file
# The names of the third and later dimensions of an input, by its number of dimensions.
SIZE_NAMES = {3: ("length",), 4: ("height", "width"), 5: ("depth", "height", "width")}


@dataclass(frozen=True)
class FreeSizes:
    """The sizes that an ONNX file leaves free."""

    dynamic_batch: bool
    free_sizes: tuple[int, ...] = ()  # the dimensions of height and width that are free
    notes: tuple[str, ...] = ()  # a sentence for each size that was to be free and is not


def write_program(
    flat: FlatNetwork, arguments: tuple[Any, ...], path: Path, opset: int, dynamic_batch: bool, dynamic_size: bool
) -> FreeSizes:
    """Write a network to a file; sizes that its code fixes are those of the example.

    Args:
        flat: the network.
        arguments: the example.
        path: the file. Weights that are too large for one file go to a second one beside it.
        opset: the version of the ONNX operators.
        dynamic_batch: whether the batch size should be free.
        dynamic_size: whether height and width should be free.
    """
    notes = []
    program = _with_free_batch(flat, arguments, opset, dynamic_size) if dynamic_batch else None
    if program is None:
        if dynamic_batch:
            notes.append(f"The batch size is fixed at {batch_of(arguments)}: the network's code depends on it.")
        program = _program(flat, arguments, opset, None, dynamic_size)
        dynamic_batch = False
    free: set[int] = set()
    if dynamic_size:
        for tensor, entry in zip(tensors_in(arguments), program.model.graph.inputs, strict=True):
            for dim, name in _size_names(tensor).items():
                if isinstance(entry.shape[dim], int):
                    notes.append(f"The {name} of {entry.name} is fixed at {entry.shape[dim]} by the network's code.")
                else:
                    free.add(dim)
    program.save(str(path), external_data=needs_second_file(flat))
    return FreeSizes(dynamic_batch, tuple(sorted(free)), tuple(notes))


def needs_second_file(model: nn.Module) -> bool:
    """Return whether the weights of a network are too large for one file."""
    weights = (tensor for tensor in model.state_dict().values() if isinstance(tensor, Tensor))
    return sum(tensor.nbytes for tensor in weights) > SINGLE_FILE_BYTES


def _with_free_batch(flat: FlatNetwork, arguments: tuple[Any, ...], opset: int, dynamic_size: bool) -> Any:
    """Return the program for any batch size, or None if the network cannot be converted to one."""
    batch = max(2, batch_of(arguments))  # torch.export treats a size of one as a constant
    try:
        return _program(flat, with_batch(arguments, batch), opset, batch, dynamic_size)
    except ExportFailed:
        return None


def _program(flat: FlatNetwork, arguments: tuple[Any, ...], opset: int, batch: int | None, dynamic_size: bool) -> Any:
    """Convert the network, and remove the notes on source files from its operators.

    Args:
        flat: the network.
        arguments: the example.
        opset: the version of the ONNX operators.
        batch: the batch size of the example if it is free; None if it is fixed.
        dynamic_size: whether height and width are free.
    """
    tensors = tensors_in(arguments)
    names = [_free_names(tensor, batch, dynamic_size) for tensor in tensors]
    sizes = [{dim: _free(name) for dim, name in entry.items()} for entry in names]
    _run_on_other_sizes(flat, arguments, dynamic_size)
    with quiet_export(), torch.no_grad():
        try:
            exported = torch.export.export(flat, tensors, dynamic_shapes=(tuple(sizes),), strict=False)
            program: Any = torch.onnx.export(
                exported,
                dynamo=True,
                opset_version=opset,
                verbose=False,
                input_names=flat.inputs,
                output_names=flat.outputs,
                dynamic_shapes=(tuple(names),),  # for the names: without it the batch size would be called s95
            )
        except Exception as error:  # whatever the network's code or the exporters raise
            raise ExportFailed(
                f"{type(flat.network).__name__} cannot be converted to ONNX: {first_line(_root(error))}. "
                "Replace that part of the network, or try another opset."
            ) from error
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()
    if program.model.opset_imports[""] != opset:
        raise ExportFailed(
            f"Opset {opset} was requested, but {type(flat.network).__name__} needs operators of opset "
            f"{program.model.opset_imports['']}. Request that one."
        )
    return program


def _free_names(tensor: Tensor, batch: int | None, dynamic_size: bool) -> dict[int, str]:
    """The names of the free dimensions of an input."""
    names = {0: "batch"} if tensor.dim() and tensor.shape[0] == batch else {}
    return {**names, **_size_names(tensor)} if dynamic_size else names


def _size_names(tensor: Tensor) -> dict[int, str]:
    """The names of the dimensions of an input after batch and channels."""
    return dict(enumerate(SIZE_NAMES.get(tensor.dim(), ()), start=2))


def named_sizes(arguments: tuple[Any, ...]) -> list[tuple[str, int]]:
    """The names and sizes of all dimensions of an example that can be free, besides the batch size."""
    return [(name, tensor.shape[dim]) for tensor in tensors_in(arguments) for dim, name in _size_names(tensor).items()]


def _free(name: str) -> Any:
    """A free dimension: any batch size, or the heights and widths that the network's divisions permit."""
    return torch.export.Dim(name) if name == "batch" else torch.export.Dim.AUTO


def _run_on_other_sizes(flat: FlatNetwork, arguments: tuple[Any, ...], dynamic_size: bool) -> None:
    """Run the inner network on a batch of one and, if height and width are free, on images of twice their size.

    Detection heads keep what they computed for the last shape. torch.export would find that shape to be the one that
    it exports, and fix it.
    """
    other = with_batch(arguments, 1)
    if dynamic_size:
        largest = max(tensors_in(arguments), key=Tensor.dim)
        other = with_more(other, {dim: largest.shape[dim] for dim in _size_names(largest)})
    with suppress(Exception), torch.no_grad():  # a network that accepts only its own sizes keeps nothing of others
        flat.network(*other)


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
