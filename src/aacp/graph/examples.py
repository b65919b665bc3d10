"""Examples: what a network is called with, as plain data, at another batch size, or as a flat list of tensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from aacp.data.examples import narrowed, tensors_in
from aacp.errors import InvalidExample, InvalidOption, failing_as
from aacp.pytorch.internals import pytree
from aacp.pytorch.modules import submodules

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


# -- plain data -------------------------------------------------------------------------------------------------------


def to_plain(example: Any) -> Any:
    """An example as values that JSON can hold: the shapes and types of its tensors, not their values."""
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
    """An example from what `to_plain` returned: the same random numbers each time, zeros in integer tensors."""
    return _build(plain, torch.Generator().manual_seed(0))


def _build(plain: Any, generator: torch.Generator) -> Any:
    if isinstance(plain, list):
        return [_build(item, generator) for item in plain]
    if not isinstance(plain, Mapping):
        return plain
    if "tuple" in plain:
        return tuple(_build(item, generator) for item in plain["tuple"])
    if "dictionary" in plain:
        return {key: _build(item, generator) for key, item in plain["dictionary"].items()}
    dtype = getattr(torch, plain["dtype"])
    if dtype.is_floating_point:
        return torch.randn(plain["tensor"], generator=generator).to(dtype)
    return torch.zeros(plain["tensor"], dtype=dtype)  # zero is a valid index into every table


# -- batches ----------------------------------------------------------------------------------------------------------


def batch_of(example: Any) -> int:
    """The batch size of an example: the first dimension of its first tensor."""
    sizes = [tensor.shape[0] for tensor in tensors_in(example) if tensor.dim()]
    if not sizes:
        raise InvalidOption("The example holds no tensor with a batch dimension. Give a batch of real inputs.")
    return int(sizes[0])


def with_batch(example: Any, batch: int) -> Any:
    """The example at another batch size: rows are repeated or dropped in each tensor that begins with the batch."""
    size = batch_of(example)

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim() or leaf.shape[0] != size:
            return leaf
        return leaf.detach()[torch.arange(batch, device=leaf.device) % size]

    return pytree.tree_map(resized, example)


def in_batches(inputs: Any, size: int | None) -> Iterator[Any]:
    """Yield inputs in batches of one size; inputs are repeated to fill the last one. None yields them unchanged."""
    count = batch_of(inputs)
    if size is None or size == count:
        yield inputs
        return
    for start in range(0, count, size):
        length = min(size, count - start)
        yield with_batch(narrowed(inputs, start, length, count), size)


def with_more(example: Any, growth: Mapping[int, int]) -> Any:
    """The example with larger images: `growth` maps a dimension to the number of places that are added to it.

    Places are repeated from the beginning. Tensors of fewer than three dimensions are not images and stay as they are.
    """

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.dim() < 3:
            return leaf
        for dim, more in growth.items():
            if dim < leaf.dim():
                size = leaf.shape[dim]
                leaf = leaf.index_select(dim, torch.arange(size + more, device=leaf.device) % size)
        return leaf

    return pytree.tree_map(resized, example)


# -- flat lists of tensors --------------------------------------------------------------------------------------------


class FlatNetwork(nn.Module):
    """A network that takes and returns a flat list of tensors, as exchange formats need it, around another network.

    Arguments that are not tensors are constants, with the values that they have in the example. A call leaves the
    attributes of the inner network as they were, since an exporter would otherwise store its own tensors in them.
    """

    def __init__(self, network: nn.Module, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.network = network
        self.training = network.training  # an exporter sets all modules to the mode of this one
        leaves, self.spec = pytree.tree_flatten(arguments)
        self.constants = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]
        names: list[str] = []
        for root, argument in zip(_argument_names(network, len(arguments)), arguments, strict=True):
            names += tensor_names(root, argument)
        self.inputs = tuple(names)
        self.outputs = tuple(tensor_names("output", self._run_once(arguments)))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        leaves = [next(given) if constant is None else constant[0] for constant in self.constants]
        with _same_attributes(self.network):
            return tensors_in(self.network(*pytree.tree_unflatten(leaves, self.spec)))

    @torch.no_grad()
    def _run_once(self, arguments: tuple[Any, ...]) -> Any:
        what = f"{type(self.network).__name__} does not run on the example"
        remedy = "Give an example that the network accepts."
        with failing_as(InvalidExample, what, remedy), _same_attributes(self.network):
            return self.network(*arguments)


@contextmanager
def _same_attributes(network: nn.Module) -> Iterator[None]:
    """Undo every assignment to an attribute, such as the grid that a detection head keeps for the next call."""
    before = [(module, dict(module.__dict__)) for module in submodules(network)]
    try:
        yield
    finally:
        for module, attributes in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)


def _argument_names(network: nn.Module, count: int) -> list[str]:
    """The names of the first arguments of the network's forward."""
    entries = inspect.signature(network.forward).parameters.values()
    names = [entry.name for entry in entries if entry.kind in POSITIONAL][:count]
    return names + [f"input_{position}" for position in range(len(names), count)]


def tensor_names(root: str, value: Any) -> list[str]:
    """A name for each tensor in a nested value, in the order of `tensors_in`: "batch.views.0"."""
    leaves, _ = pytree.tree_flatten_with_path(value)
    paths = [keys for keys, leaf in leaves if isinstance(leaf, Tensor)]
    return [".".join([root, *map(_step, keys)]) for keys in paths]


def _step(key: Any) -> str:
    """One step into a nested value: a key, an index or a field."""
    return str(next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)))
