"""Signature: what a network is called with, as plain data: the shapes and types of an example, nested as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from aacp.errors import InvalidOption
from aacp.torch_internals import pytree


def to_plain(example: Any) -> Any:
    """An example as JSON can hold it; of a tensor the shape and the type are kept, not the values."""
    if isinstance(example, Tensor):
        return {"tensor": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
    if isinstance(example, tuple):
        return {"tuple": [to_plain(item) for item in example]}
    if isinstance(example, list):
        return [to_plain(item) for item in example]
    if isinstance(example, dict) and all(isinstance(key, str) for key in example):
        return {"dictionary": {key: to_plain(item) for key, item in example.items()}}
    if example is None or isinstance(example, (bool, int, float, str)):
        return example
    raise InvalidOption(
        f"An example holds a {type(example).__name__}, which a file cannot describe. "
        "Use tensors, plain values, tuples, lists, and dictionaries with text as keys."
    )


def from_plain(plain: Any) -> Any:
    """An example of that form: random numbers, the same each time; zeros where the type holds whole numbers."""
    return _built(plain, torch.Generator().manual_seed(0))


def _built(plain: Any, generator: torch.Generator) -> Any:
    if isinstance(plain, list):
        return [_built(item, generator) for item in plain]
    if not isinstance(plain, Mapping):
        return plain
    if "tuple" in plain:
        return tuple(_built(item, generator) for item in plain["tuple"])
    if "dictionary" in plain:
        return {key: _built(item, generator) for key, item in plain["dictionary"].items()}
    dtype = getattr(torch, plain["dtype"])
    if dtype.is_floating_point:
        return torch.randn(plain["tensor"], generator=generator).to(dtype)
    return torch.zeros(plain["tensor"], dtype=dtype)  # an index that every table has


def batch_of(example: Any) -> int:
    """The batch size of an example: the first dimension of its first tensor."""
    sizes = [leaf.shape[0] for leaf in pytree.tree_leaves(example) if isinstance(leaf, Tensor) and leaf.dim()]
    if not sizes:
        raise InvalidOption("The example holds no tensor with a batch dimension. Give a batch of real inputs.")
    return int(sizes[0])


def with_batch(example: Any, batch: int) -> Any:
    """The example with its rows repeated or cut to another batch size, in each tensor that has the batch in front."""
    size = batch_of(example)

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim() or leaf.shape[0] != size:
            return leaf
        return leaf.detach()[torch.arange(batch, device=leaf.device) % size]

    return pytree.tree_map(resized, example)
