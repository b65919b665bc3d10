"""FileNetwork: a file of a runtime that is called like the network that it was exported from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from aacp.data.examples import tensors_in
from aacp.graph.examples import batch_of, in_batches
from aacp.pytorch.internals import pytree
from aacp.pytorch.modules import evaluating, positional

RunInputs = Callable[[tuple[Tensor, ...]], Sequence[Any]]  # runs a file on inputs; its outputs are arrays or tensors


class FileNetwork(nn.Module):
    """A file in its runtime on the CPU, for score functions that were written for torch modules.

    It takes what the original takes and returns what it returns, on the device of the inputs. It has no parameters and
    cannot be trained.

    Args:
        run: runs the file on tensors on the CPU.
        batch: the only batch size that the file accepts; None if it accepts any.
        original: the network that it was exported from, on the CPU.
        example: an input of the original on the CPU, which shows how its outputs are nested.
    """

    def __init__(self, run: RunInputs, batch: int | None, original: nn.Module, example: Any) -> None:
        super().__init__()
        self._run = run
        self._batch = batch
        self._signature = inspect.signature(original.forward)
        with torch.no_grad(), evaluating(original):
            outputs = original(*positional(original, example))
        self._leaves, self._spec = pytree.tree_flatten(outputs)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        bound = self._signature.bind(*arguments, **named)
        bound.apply_defaults()
        given = (*bound.args, *bound.kwargs.values())
        device = tensors_in(given)[0].device
        outputs = iter([value.to(device) for value in self._outputs(given)])
        leaves = [next(outputs) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._spec)

    def _outputs(self, arguments: tuple[Any, ...]) -> list[Tensor]:
        """Return all outputs; a file for one batch size runs several times."""
        count = batch_of(arguments)
        parts = [self._run_part(part) for part in in_batches(arguments, self._batch)]
        if self._batch in (None, count):
            return parts[0]
        return [torch.cat(tensors)[:count] for tensors in zip(*parts, strict=True)]

    def _run_part(self, arguments: tuple[Any, ...]) -> list[Tensor]:
        """Return the outputs for one run, as copies: a runtime may use the same memory for the next run."""
        tensors = tuple(tensor.detach().cpu() for tensor in tensors_in(arguments))
        return [torch.as_tensor(value).clone() for value in self._run(tensors)]
