"""Tracing: from a module and an example to a verified ChannelGraph."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from aacp.channels import ChannelGraph, ChannelGroup
from aacp.errors import GraphMismatch, InvalidExample, InvalidOption, NothingToPrune, UntraceableModel, first_line
from aacp.graph.assembly import Assembled
from aacp.graph.program import export
from aacp.graph.propagation import Propagation
from aacp.graph.tracked import TrackedRun, run_tracked
from aacp.graph.unverified import follow
from aacp.graph.verification import Verifier, enliven, outputs, settle, verified
from aacp.modules import copy_module, detach_hooks, named_tensors, positional
from aacp.torch_internals import pytree

SCOPES = ("all", "inner")
FORMS = ("module", "exported")


def trace(
    model: nn.Module,
    example: Any,
    *,
    frozen: Iterable[str] = (),
    scope: str = "all",
    form: str = "module",
    seed: int = 0,
) -> ChannelGraph:
    """The channel graph of a network, checked by cutting it at random; the model is not touched.

    `example` is one input, a tuple of several, or a dictionary of them by name. `frozen` names layers or groups to
    leave alone, with wildcards ("head.*"). `scope="inner"` also leaves residual streams alone. `form="exported"` is
    for networks whose code cannot be repaired: `shrink` will return an exported graph, not a module of the same class.
    """
    patterns = (frozen,) if isinstance(frozen, str) else tuple(frozen)
    _require("scope", scope, SCOPES)
    _require("form", form, FORMS)
    _require_module(model)
    with torch.random.fork_rng(devices=_cuda_devices(model)):  # networks may draw numbers
        bench = prepare(model, example, form, seed)
        graph = freeze_by_name(bench.assembled.graph, patterns)
        if scope == "inner":
            graph = graph.freeze(dict.fromkeys(_streams(bench), "residual stream, left alone by scope='inner'"))
        graph = verified(bench, graph, seed)
    require_something_free(graph, type(model).__name__)
    return graph


def verify(model: nn.Module, graph: ChannelGraph, example: Any, *, seed: int = 0) -> ChannelGraph:
    """The graph with every group frozen that the network does not survive losing channels of; `trace` calls this.

    Every free group loses channels at random, and the outputs are compared with those of the masked original. On a
    difference the guilty group is found by bisection and frozen, with the difference as its reason.
    """
    _require_module(model)
    with torch.random.fork_rng(devices=_cuda_devices(model)):
        bench = prepare(model, example, graph.form, seed)
        ours = bench.assembled.graph
        if [(g.name, g.width) for g in ours.groups] != [(g.name, g.width) for g in graph.groups]:
            raise GraphMismatch(f"The graph is not one of this {type(model).__name__}. Trace the network again.")
        return verified(bench, graph, seed)


def prepare(
    model: nn.Module, example: Any, form: str = "module", seed: int = 0, dtype: torch.dtype = torch.float32
) -> Verifier:
    """Trace a copy of the model with lively weights, ready for verification."""
    propagation, assembled, converted = followed(model, example, form, dtype)
    twin = lively_twin(model, converted, seed, dtype)
    in_double = cache(lambda: prepare(model, example, form, seed, torch.float64))
    return Verifier(twin, propagation, assembled, converted, dtype, in_double)


def followed(
    model: nn.Module, example: Any, form: str = "module", dtype: torch.dtype = torch.float32
) -> tuple[Propagation, Assembled, tuple[Any, ...]]:
    """What tracing finds before anything is verified, and the example as arguments of one type."""
    arguments = positional(model, example)
    # A copy for each use: networks that keep caches are not the same after they have run.
    run = run_example(_twin(model), arguments)
    converted = _converted(arguments, dtype)
    program = export(_twin(model, dtype), converted)
    return *follow(program, run, model, form), converted


def lively_twin(model: nn.Module, converted: tuple[Any, ...], seed: int, dtype: torch.dtype) -> nn.Module:
    """A copy in evaluation mode with weights under which every channel shows in the output."""
    rehearsal, twin = _twin(model, dtype), _twin(model, dtype)
    enliven(rehearsal, seed)
    settle(rehearsal, converted)
    settled = dict(named_tensors(rehearsal))
    for name, value in named_tensors(twin):
        if name in settled and settled[name].shape == value.shape:
            value.data.copy_(settled[name])
    return twin


def _require_module(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidOption(f"The model is a {type(model).__name__}, not a torch.nn.Module. Give the network itself.")
    if isinstance(model, torch.jit.ScriptModule):
        raise UntraceableModel("The model is a TorchScript module. Give the torch.nn.Module that it was made from.")
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_meta:
            raise UntraceableModel(f"{name} is on the meta device and has no data. Load weights, then trace.")
        if nn.parameter.is_lazy(value):
            raise UntraceableModel(f"{name} has no shape yet. Run the network once on an input, then trace it.")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise UntraceableModel(f"{name} holds values that are not finite. Load weights that are, then trace again.")


def _twin(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy in evaluation mode that shares nothing with the model, all its numbers of one type."""
    twin = copy_module(model).eval()
    detach_hooks(twin)
    if dtype is not None:
        twin.to(dtype)
        for module in twin.modules():
            for key, value in vars(module).items():
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    vars(module)[key] = value.to(dtype)
    return twin


def _cuda_devices(model: nn.Module) -> list[int]:
    """The devices whose random state a run of the model could change."""
    return sorted({value.device.index or 0 for value in model.parameters() if value.device.type == "cuda"})


def run_example(model: nn.Module, arguments: tuple[Any, ...]) -> TrackedRun:
    """Run the copy once on the example: says what is wrong with either, and records where sizes come from."""
    tensors = outputs(arguments)
    if not tensors or not all(tensor.numel() and torch.isfinite(tensor).all() for tensor in tensors):
        raise InvalidExample("The example is no tensor, or an empty or infinite one. Give a batch of real inputs.")
    try:
        run = run_tracked(model, copy.deepcopy(arguments))
    except Exception as error:  # whatever the model's own code raises
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InvalidExample(
            f"{type(model).__name__} does not run on the example of shape {shapes}: {first_line(error)}. "
            "Give an example that the network accepts; several inputs go in a tuple."
        ) from error
    if not outputs(run.output):
        raise InvalidExample(f"{type(model).__name__} returns no tensor on the example. Trace a network that does.")
    return run


def _converted(arguments: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    def convert(leaf: Any) -> Any:
        return leaf.detach().to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    result: tuple[Any, ...] = pytree.tree_map(convert, arguments)
    return result


def _streams(bench: Verifier) -> set[str]:
    """The groups with channels that a sum joins."""
    graph, units = bench.assembled.graph, bench.assembled.unit_of_id
    joined = [units[ids[ids >= 0]] for ids in bench.propagation.streams]
    flat = np.concatenate([*joined, np.zeros(0, dtype=np.int64)])
    return {graph.groups[group].name for group in np.unique(graph.unit_groups[flat[flat >= 0]])}


def freeze_by_name(graph: ChannelGraph, patterns: tuple[str, ...]) -> ChannelGraph:
    """Freeze the groups whose name, or one of whose layers, matches a pattern."""
    reasons: dict[str, str] = {}
    for pattern in patterns:
        found = [group.name for group in graph.groups if _matches(pattern, _paths(graph, group))]
        if not found:
            raise InvalidOption(f"frozen={pattern!r} matches no group and no layer. print(graph) lists them.")
        reasons |= dict.fromkeys(found, f"frozen by hand ({pattern})")
    return graph.freeze(reasons)


def _paths(graph: ChannelGraph, group: ChannelGroup) -> list[str]:
    """The names that stand for a group: its own, its producers, and modules that act on single channels (norms)."""
    layers = {layer.name for layer in graph.layers}  # of these, only the producers count: the others read the channels
    others = [member.module for member in group.members if member.dim == 0 and member.module not in layers]
    return [group.name, *graph.producer_names(group), *others]


def _matches(pattern: str, paths: list[str]) -> bool:
    return pattern in paths or any(fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*") for path in paths)


def _require(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidOption(f"{name}={value!r} is not known. Choose {' or '.join(map(repr, choices))}.")


def require_something_free(graph: ChannelGraph, name: str) -> None:
    if not graph.free:
        why = "; ".join(dict.fromkeys(f"{group.name}: {group.frozen}" for group in graph.groups[:3]))
        raise NothingToPrune(f"No channel of {name} can be pruned ({why}). Freeze less, or change these parts.")
