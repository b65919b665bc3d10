"""Flat: a network that takes and returns nothing but tensors, one after the other, as exchange formats want it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from aacp.errors import InvalidExample, first_line
from aacp.torch_internals import pytree

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FlatNetwork(nn.Module):
    """A network around another that unpacks and packs up for it; what is no tensor stays as in the example."""

    def __init__(self, network: nn.Module, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.network = network
        leaves, self.spec = pytree.tree_flatten(arguments)
        self.others = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]
        self.inputs = tuple(
            name for part in zip(_roots(network, len(arguments)), arguments, strict=True) for name in _names(*part)
        )
        self.outputs = _names("output", self._run_once(arguments))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        leaves = [next(given) if other is None else other[0] for other in self.others]
        return tensors_in(self.network(*pytree.tree_unflatten(leaves, self.spec)))

    @torch.no_grad()
    def _run_once(self, arguments: tuple[Any, ...]) -> Any:
        try:
            return self.network(*arguments)
        except Exception as error:  # whatever the network's own code raises
            raise InvalidExample(
                f"{type(self.network).__name__} does not run on the example: {first_line(error)}. Give an example "
                "that the network accepts; one that accepts a single batch size only needs dynamic_batch=False."
            ) from error


def tensors_in(value: Any) -> tuple[Tensor, ...]:
    """The tensors of a nested value, in order."""
    return tuple(leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor))


def _roots(network: nn.Module, count: int) -> list[str]:
    """What the network calls its first arguments."""
    entries = inspect.signature(network.forward).parameters.values()
    names = [entry.name for entry in entries if entry.kind in POSITIONAL][:count]
    return names + [f"input_{position}" for position in range(len(names), count)]


def _names(root: str, value: Any) -> tuple[str, ...]:
    """A name for each tensor in a nested value: "batch.views.0"."""
    leaves, _ = pytree.tree_flatten_with_path(value)
    paths = [keys for keys, leaf in leaves if isinstance(leaf, Tensor)]
    return tuple(".".join([root, *map(_step, keys)]) for keys in paths)


def _step(key: Any) -> str:
    """One step into a nested value: a key, an index or a field."""
    return str(next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)))
