"""Tracing: from a module and an example to a verified ChannelGraph."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from aacp.channels import ChannelGraph
from aacp.errors import InvalidExample, InvalidOption, NothingToPrune
from aacp.graph.assembly import Assembled, assemble
from aacp.graph.program import Program, copy_without_data, export, first_line
from aacp.graph.propagation import Propagation
from aacp.graph.rules import RULES
from aacp.graph.sizes import resolve_sizes
from aacp.graph.tracked import Record, run_tracked
from aacp.graph.verification import Bench, enliven, outputs, verified

SCOPES = ("all", "inner")


def trace(
    model: nn.Module, example: Any, *, frozen: Iterable[str] = (), scope: str = "all", seed: int = 0
) -> ChannelGraph:
    """The channel graph of a network, checked by cutting it at random; the model is not touched.

    `example` is one input tensor, or a tuple of the positional arguments. `frozen` names layers or groups to leave
    alone, with wildcards ("head.*"). `scope="inner"` also leaves residual streams alone.
    """
    patterns = (frozen,) if isinstance(frozen, str) else tuple(frozen)
    if scope not in SCOPES:
        raise InvalidOption(f"The scope is {scope!r}, but there are only {' and '.join(SCOPES)}. Choose one of them.")
    arguments = example if isinstance(example, tuple) else (example,)
    bench = prepare(model, arguments, scope, seed)
    graph = freeze_by_name(bench.assembled.graph, patterns)
    graph = verified(bench, graph)
    require_something_free(graph, type(model).__name__)
    return graph


def prepare(
    model: nn.Module, arguments: tuple[Any, ...], scope: str, seed: int, dtype: torch.dtype = torch.float32
) -> Bench:
    """Trace a copy of the model with lively weights, ready for verification."""
    twin = copy_without_data(model, {}).eval()
    records = run_example(twin, arguments)
    twin, converted = twin.to(dtype), _converted(arguments, dtype)
    program = export(twin, converted)
    propagation, assembled = follow(program, records, model, scope)
    enliven(twin, torch.Generator().manual_seed(seed))
    in_double = cache(lambda: prepare(model, arguments, scope, seed, torch.float64))
    return Bench(twin, propagation, assembled, converted, dtype, in_double)


def follow(program: Program, records: list[Record], model: nn.Module, scope: str) -> tuple[Propagation, Assembled]:
    """Carry labels through the program; where a split proves unlucky, once more with another factor."""
    avoided: dict[str, set[int]] = {}
    for _ in range(3):
        propagation = Propagation(program, avoided=avoided)
        propagation.run(RULES)
        if not propagation.regretted:
            break
        for name, dim in propagation.regretted.items():
            avoided.setdefault(name, set()).add(dim)
    if scope == "inner":
        for ids in propagation.streams:
            propagation.ties.fix(ids, "residual stream, left alone by scope='inner'")
    sizes = resolve_sizes(propagation, records)
    if not propagation.layers or not any(layer.kind.startswith("conv") for layer in propagation.layers):
        raise NothingToPrune(
            f"{type(model).__name__} has no convolution on the way from its inputs to its outputs. "
            "Channel pruning needs a convolutional network."
        )
    return propagation, assemble(propagation, model, sizes, "module")


def run_example(model: nn.Module, arguments: tuple[Any, ...]) -> list[Record]:
    """Run the copy once on the example: says what is wrong with either, and records where sizes come from."""
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InvalidExample(f"{name} holds values that are not finite. Load weights that are, then trace again.")
    try:
        output, records = run_tracked(model, copy.deepcopy(arguments))
    except Exception as error:  # whatever the model's own code raises
        shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        raise InvalidExample(
            f"{type(model).__name__} does not run on the example of shape {', '.join(map(str, shapes))}: "
            f"{first_line(error)}. Give an example that the network accepts; several inputs go in a tuple."
        ) from error
    if not outputs(output):
        raise InvalidExample(f"{type(model).__name__} returns no tensor on the example. Trace a network that does.")
    return records


def _converted(arguments: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    def convert(leaf: Any) -> Any:
        return leaf.detach().to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    result: tuple[Any, ...] = pytree.tree_map(convert, arguments)
    return result


def freeze_by_name(graph: ChannelGraph, patterns: tuple[str, ...]) -> ChannelGraph:
    """Freeze the groups whose name, or one of whose layers, matches a pattern."""
    reasons: dict[str, str] = {}
    for pattern in patterns:
        found = [group.name for group in graph.groups if _matches(pattern, group.name, group.members)]
        if not found:
            raise InvalidOption(f"frozen={pattern!r} matches no group and no layer. print(graph) lists them.")
        reasons |= dict.fromkeys(found, f"frozen by hand ({pattern})")
    return graph.freeze(reasons)


def _matches(pattern: str, name: str, members: tuple[str, ...]) -> bool:
    # A member "head.conv.weight[0]" makes its channels in the first dimension; later ones only read them.
    makers = [member.removesuffix("[0]").rpartition(".")[0] for member in members if member.endswith("[0]")]
    return any(fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*") for path in [name, *makers])


def require_something_free(graph: ChannelGraph, name: str) -> None:
    if not graph.free:
        why = "; ".join(dict.fromkeys(f"{group.name}: {group.frozen}" for group in graph.groups[:3]))
        raise NothingToPrune(f"No channel of {name} can be pruned ({why}). Freeze less, or change these parts.")
