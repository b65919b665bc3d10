"""OnnxNetwork: an ONNX file that is called like the network that it was exported from."""

from __future__ import annotations

import inspect
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aacp.artefact.onnx_int8 import fixed_batch, in_batches
from aacp.artefact.onnx_session import open_session, session_inputs
from aacp.graph.examples import batch_of, tensors_in
from aacp.modules import evaluating, positional
from aacp.torch_internals import pytree


class OnnxNetwork(nn.Module):
    """An ONNX file in ONNX Runtime on the CPU, for score functions that were written for torch modules.

    It takes what the original takes and returns what it returns, on the device of the inputs. It has no parameters and
    cannot be trained.

    Args:
        path: the file.
        original: the network that it was exported from, on the CPU.
        example: an input of the original on the CPU, which shows how its outputs are nested.
        threads: how many CPU threads an operator may use.
    """

    def __init__(self, path: str | os.PathLike[str], original: nn.Module, example: Any, threads: int = 1) -> None:
        super().__init__()
        self._session = open_session(path, threads)
        self._signature = inspect.signature(original.forward)
        with torch.no_grad(), evaluating(original):
            outputs = original(*positional(original, example))
        self._leaves, self._spec = pytree.tree_flatten(outputs)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        bound = self._signature.bind(*arguments, **named)
        bound.apply_defaults()
        given = (*bound.args, *bound.kwargs.values())
        device = tensors_in(given)[0].device
        outputs = iter(torch.from_numpy(value).to(device) for value in self._run(given))
        leaves = [next(outputs) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._spec)

    def _run(self, arguments: tuple[Any, ...]) -> list[Any]:
        """Return the arrays of all outputs; a file for one batch size runs several times."""
        count = batch_of(arguments)
        size = fixed_batch(self._session)
        parts = [self._session.run(None, session_inputs(self._session, part)) for part in in_batches(arguments, size)]
        if size in (None, count):
            return list(parts[0])
        return [np.concatenate(arrays)[:count] for arrays in zip(*parts, strict=True)]
