"""Tracing: from a network and an example to a verified ChannelGraph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.coordinates import Ties, paper_coordinates, tied
from aacp.channels.elements import ChannelGroup
from aacp.channels.graph import ChannelGraph
from aacp.errors import GraphMismatch, InvalidExample, InvalidOption, NothingToPrune, UntraceableModel
from aacp.graph.assembly import Assembled
from aacp.graph.assigned import assigned_attributes
from aacp.graph.parts import part_units, record_calls, trace_found, trace_named
from aacp.graph.propagation import Propagation
from aacp.graph.training_only import unused_parameters, with_training_parts
from aacp.graph.unverified import arguments_for, trace_unverified
from aacp.graph.verification import Verifier, randomised_copy, verified
from aacp.pytorch.internals import ONE_THREAD
from aacp.pytorch.modules import cuda_devices, require_network
from aacp.user.code import without_exit
from aacp.user.options import advice_of_many, known_options, require_known
from aacp.user.values import names

SCOPES = ("all", "inner", "paper")
FORMS = ("module", "exported")


@known_options
@without_exit
def trace(
    model: nn.Module,
    example: Any,
    *,
    frozen: Iterable[str] = (),
    scope: str = "all",
    tie: Ties = (),
    parts: Iterable[str] | None = None,
    form: str = "module",
    seed: int = 0,
) -> ChannelGraph:
    """The channel graph of a network, verified by random cuts; the model is not changed.

    Args:
        model: the network.
        example: one input, a tuple of several, or a dictionary of them by name.
        frozen: layers or groups that must not be pruned, by name or with wildcards ("head.*").
        scope: "all", "inner" to leave residual streams unpruned, or "paper" for the coordinates that the paper's
            authors searched, which are known for their five networks.
        tie: groups that a search gives the same share of their widths: the names of the groups of each tie.
        parts: the submodules to trace, by name ("backbone"); what enters and leaves them is not pruned. None is the
            whole network or, if torch.export cannot follow it, the largest parts that it can follow.
        form: "module", or "exported" for networks whose code does not run with other widths: `shrink` then returns a
            graph of operators in place of a module of the same class. Parts are traced as modules only.
        seed: the seed of the random cuts.
    """
    patterns = (frozen,) if isinstance(frozen, str) else names("frozen", frozen)
    require_known("scope", scope, SCOPES)
    require_known("form", form, FORMS)
    if parts is not None and form != "module":
        raise InvalidOption(f"form={form!r} is not available for parts, which stay modules. Leave out form or parts.")
    _require_traceable(model)

    def trace_part(part: nn.Module, arguments: tuple[Any, ...]) -> ChannelGraph:
        return _trace_verified(part, arguments, (), scope, "module", seed)

    with ONE_THREAD, torch.random.fork_rng(devices=cuda_devices(model)):  # networks may draw random numbers
        if parts is not None:
            chosen = (parts,) if isinstance(parts, str) else names("parts", parts)
            graph = freeze_by_name(trace_named(model, example, chosen, trace_part), patterns)
        else:
            try:
                graph = _trace_verified(model, example, patterns, scope, form, seed)
            except InvalidExample:
                raise
            except UntraceableModel:
                found = trace_found(model, example, trace_part) if form == "module" else None
                if found is None or not found.free:
                    raise
                graph = freeze_by_name(found, patterns)
        graph = _without_results(graph, model, example)
    graph = tied(graph, tie)  # verification may freeze a group that is to be tied
    require_something_free(graph, type(model).__name__)
    return graph


def _without_results(graph: ChannelGraph, model: nn.Module, example: Any) -> ChannelGraph:
    """The graph without attributes that hold a result of the last run, which are no weights and have any batch size."""
    results = assigned_attributes(model, lambda: arguments_for(model, example))
    kept = (tensor for tensor in graph.tensors if tensor.name not in results or set(tensor.lanes) - {None})
    return replace(graph, tensors=tuple(kept)) if results else graph


def _trace_verified(
    model: nn.Module, example: Any, patterns: tuple[str, ...], scope: str, form: str, seed: int
) -> ChannelGraph:
    """The verified graph of one program: a network, or a part of one; the arguments are those of `trace`."""
    verifier = prepare(model, example, form, seed)
    unused = unused_parameters(verifier.propagation.program, model)
    graph = with_training_parts(verifier.assembled.graph, verifier.model, verifier.arguments, unused)
    graph = freeze_by_name(graph, patterns)
    if scope == "inner":
        streams = _streams(verifier.propagation, verifier.assembled)
        graph = graph.freeze(dict.fromkeys(streams, "residual stream, left alone by scope='inner'"))
    elif scope == "paper":
        graph = paper_coordinates(graph)
    return verified(verifier, graph, seed)


def verify(model: nn.Module, graph: ChannelGraph, example: Any, *, seed: int = 0) -> ChannelGraph:
    """The graph with every group frozen whose channels cannot be removed without an error; `trace` calls this.

    Every free group loses random channels, and the outputs are compared with those of the masked original. If they
    differ, the responsible group is found by bisection and frozen, with the difference as the reason.

    Args:
        model: the network, which is not changed.
        graph: its channel graph.
        example: one input, a tuple of several, or a dictionary of them by name.
        seed: the seed of the random cuts.
    """
    _require_traceable(model)
    with ONE_THREAD, torch.random.fork_rng(devices=cuda_devices(model)):
        for part, network, arguments in _programs(model, graph, example):
            verifier = prepare(network, arguments, graph.form, seed)
            ours = verifier.assembled.graph
            prefix = f"{part}." if part else ""
            theirs = [replace(g, name=g.name.removeprefix(prefix)) for g in graph.groups if g.name.startswith(prefix)]
            if [(g.name, g.width) for g in ours.groups] != [(g.name, g.width) for g in theirs]:
                raise GraphMismatch(
                    f"The graph was traced from another network, not from this {type(model).__name__}. "
                    "Trace the network again."
                )
            known = {group.name: group.frozen for group in theirs if group.frozen is not None}
            found = verified(verifier, ours.freeze(known), seed)
            graph = graph.freeze({f"{prefix}{g.name}": g.frozen for g in found.groups if g.frozen is not None})
        return graph


def difference_when_cut(model: nn.Module, graph: ChannelGraph, example: Any, units: NDArray[np.bool_]) -> str | None:
    """How a network with only these units differs from the masked original; None if it does not."""
    for part, network, arguments in _programs(model, graph, example):
        verifier = prepare(network, arguments, graph.form)
        inside = part_units(graph, part) if part else np.ones_like(units)
        difference = verifier.difference_when(verifier.assembled.graph, units[inside])
        if difference is not None:
            return difference
    return None


def _programs(model: nn.Module, graph: ChannelGraph, example: Any) -> Iterator[tuple[str, nn.Module, Any]]:
    """What a graph was traced from: the whole network (""), or each part by name, with what to call it with."""
    if not graph.parts:
        yield "", model, example
        return
    calls = record_calls(model, example)
    for part in graph.parts:
        yield part, model.get_submodule(part), calls[part].arguments


def prepare(
    model: nn.Module, example: Any, form: str = "module", seed: int = 0, dtype: torch.dtype = torch.float32
) -> Verifier:
    """Trace a copy of the model with random weights, ready for verification.

    Args:
        model: the network; it is not changed.
        example: what to call it with.
        form: "module" or "exported", as for `trace`.
        seed: the seed of the random weights.
        dtype: the floating-point type in which outputs are compared.
    """
    propagation, assembled, arguments = trace_unverified(model, example, form, dtype)
    twin = randomised_copy(model, arguments, seed, dtype)
    exported_in_double = cache(lambda: prepare(model, example, form, seed, torch.float64))
    return Verifier(twin, propagation, assembled, arguments, dtype, exported_in_double)


def _require_traceable(model: nn.Module) -> None:
    require_network(model)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise UntraceableModel(f"{name} holds values that are not finite. Load finite weights, then trace again.")


def residual_streams(model: nn.Module, graph: ChannelGraph, example: Any) -> set[str]:
    """The names of the groups that scope="inner" leaves unpruned, in a graph of another scope; nothing is verified."""
    found: set[str] = set()
    with ONE_THREAD, torch.random.fork_rng(devices=cuda_devices(model)):
        for part, network, arguments in _programs(model, graph, example):
            propagation, assembled, _ = trace_unverified(network, arguments, graph.form)
            prefix = f"{part}." if part else ""
            found |= {f"{prefix}{name}" for name in _streams(propagation, assembled)}
    return found


def _streams(propagation: Propagation, assembled: Assembled) -> set[str]:
    """The names of the groups with channels that are added to others."""
    graph = assembled.graph
    joined = [assembled.unit_of_id[ids[ids >= 0]] for ids in propagation.streams]
    flat = np.concatenate([*joined, np.zeros(0, dtype=np.int64)])
    return {graph.groups[group].name for group in np.unique(graph.unit_groups[flat[flat >= 0]])}


def freeze_by_name(graph: ChannelGraph, patterns: tuple[str, ...]) -> ChannelGraph:
    """Freeze the groups whose name, or the name of one of whose layers, matches a pattern."""
    reasons: dict[str, str] = {}
    for pattern in patterns:
        found = [group.name for group in graph.groups if _matches(pattern, _paths(graph, group))]
        if not found:
            known = [path for group in graph.groups for path in _paths(graph, group)]
            advice = advice_of_many(pattern, known, "aacp trace or print(graph)")
            raise InvalidOption(f"frozen={pattern!r} matches no group and no layer. {advice}")
        reasons |= dict.fromkeys(found, f"frozen by hand ({pattern})")
    return graph.freeze(reasons)


def _paths(graph: ChannelGraph, group: ChannelGroup) -> list[str]:
    """The names that stand for a group: its own, its producers, and modules that act on single channels (norms)."""
    layers = {layer.name for layer in graph.layers}  # of these, only the producers count: the others read the channels
    others = [member.module for member in group.members if member.dim == 0 and member.module not in layers]
    return [group.name, *graph.producer_names(group), *others]


def _matches(pattern: str, paths: list[str]) -> bool:
    return pattern in paths or any(fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*") for path in paths)


def require_something_free(graph: ChannelGraph, name: str) -> None:
    """Reject a graph in which every group is frozen."""
    if not graph.free:
        why = "; ".join(dict.fromkeys(f"{group.name}: {group.frozen}" for group in graph.groups[:3]))
        raise NothingToPrune(f"No channel of {name} can be pruned ({why}). Freeze less, or change these parts.")
