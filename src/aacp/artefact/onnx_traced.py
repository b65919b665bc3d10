"""write_traced: a network as an ONNX file by torch's older exporter, which traces one run and is ten times faster.

torch has deprecated it: if it fails, or no longer exists, the caller uses the newer exporter (onnx_program.py).
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aacp.data.examples import tensors_in
from aacp.errors import ExportFailed, first_line
from aacp.graph.examples import FlatNetwork, batch_of, with_batch
from aacp.pytorch.internals import TracerWarning, quiet_export


def write_traced(
    flat: FlatNetwork, arguments: tuple[Any, ...], path: Path, opset: int, *, dynamic_batch: bool, strict: bool
) -> None:
    """Write the file, or raise ExportFailed. It must be compared with torch: a trace can differ from the network.

    Args:
        flat: the network.
        arguments: the example; height and width are fixed to its own.
        path: the file to write.
        opset: the version of the ONNX operators.
        dynamic_batch: whether the batch size is free.
        strict: fail if the code of the network uses the value of a tensor, because the trace would fix that value.
    """
    batch = max(2, batch_of(arguments)) if dynamic_batch else batch_of(arguments)
    arguments = with_batch(arguments, batch)
    try:
        axes = _free_axes(flat, arguments, batch) if dynamic_batch else {}
        with quiet_export(), warnings.catch_warnings(record=True) as raised, torch.no_grad():
            warnings.simplefilter("always")
            torch.onnx.export(
                flat, tensors_in(arguments), os.fspath(path), dynamo=False, opset_version=opset,
                input_names=list(flat.inputs), output_names=list(flat.outputs), dynamic_axes=axes,
            )  # fmt: skip
        fixed = [warning for warning in raised if issubclass(warning.category, TracerWarning)]
        if strict and fixed:
            raise ValueError(str(fixed[0].message))
    except Exception as error:  # whatever the network's code or the exporter raises
        name = type(flat.network).__name__
        raise ExportFailed(
            f"torch's older exporter cannot export {name}: {first_line(error)}. The newer one is used."
        ) from error


def _free_axes(flat: FlatNetwork, arguments: tuple[Any, ...], batch: int) -> dict[str, dict[int, str]]:
    """The dimensions of inputs and outputs that have the batch size: those that change with it."""
    larger = with_batch(arguments, batch + 1)
    axes = {}
    with torch.no_grad():
        pairs = [(tensors_in(arguments), tensors_in(larger))]
        pairs.append((flat(*pairs[0][0]), flat(*pairs[0][1])))
    for names, (before, after) in zip((flat.inputs, flat.outputs), pairs, strict=True):
        for name, small, large in zip(names, before, after, strict=True):
            axes[name] = dict.fromkeys(_changed(small, large, batch), "batch")
    return axes


def _changed(small: Tensor, large: Tensor, batch: int) -> list[int]:
    """The dimensions in which two tensors of neighbouring batch sizes differ; each must be a batch size."""
    changed = [dim for dim, (a, b) in enumerate(zip(small.shape, large.shape, strict=True)) if a != b]
    if any((small.shape[dim], large.shape[dim]) != (batch, batch + 1) for dim in changed):
        raise ValueError("a size that is not the batch size changes with it")
    return changed
