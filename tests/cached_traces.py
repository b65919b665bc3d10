"""Traces that tests share: a graph depends on the code and the sizes of a network, and many tests prune the same one.

Exports take most of the time of a run with a tiny network. Tests of tracing itself call `aacp.trace`, which is not
replaced: only the calls of `aacp.pipeline` look up what an earlier test of the process has traced or exported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from aacp.channels.graph import ChannelGraph
from aacp.graph import tracing
from aacp.graph.verification import Verifier
from aacp.pipeline import pruning, task

_graphs: dict[Hashable, ChannelGraph] = {}
_differences: dict[Hashable, str | None] = {}
_verifiers: dict[Hashable, Verifier] = {}
PLAIN = (bool, int, float, str, tuple, list, dict, type(None))


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pipeline look up traces, and comparisons of cut networks, by what they depend on."""
    monkeypatch.setattr(pruning, "trace", _looked_up(pruning.trace))
    monkeypatch.setattr(task, "difference_when_cut", _compared(task.difference_when_cut))


def _looked_up(trace: Callable[..., ChannelGraph]) -> Callable[..., ChannelGraph]:
    def traced(model: nn.Module, example: Any, **options: Any) -> ChannelGraph:
        key = (_architecture(model), _form(example), repr(sorted(options.items())))
        if not _is_described(model):
            return trace(model, example, **options)
        if key not in _graphs:
            with _sharing_exports():
                _graphs[key] = trace(model, example, **options)
        return _graphs[key]

    return traced


def _compared(compare: Callable[..., str | None]) -> Callable[..., str | None]:
    def compared(model: nn.Module, graph: ChannelGraph, example: Any, units: Any) -> str | None:
        key = (_architecture(model), _form(example), repr(graph.to_json()), np.asarray(units).tobytes())
        if not _is_described(model):
            return compare(model, graph, example, units)
        if key not in _differences:
            with _sharing_exports():
                _differences[key] = compare(model, graph, example, units)
        return _differences[key]

    return compared


@contextmanager
def _sharing_exports() -> Iterator[None]:
    """Let networks of the same architecture be exported once: all are verified with the same random weights."""
    prepare = tracing.prepare

    def prepared(model: nn.Module, example: Any, *options: Any) -> Verifier:
        key = (_architecture(model), _form(example), options)
        if key not in _verifiers:
            _verifiers[key] = prepare(model, example, *options)
        return _verifiers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "prepare", prepared)
        yield


def _architecture(model: nn.Module) -> Hashable:
    """The classes, settings and tensors of all modules, and whether all weights are finite."""
    modules = tuple(
        (name, type(module), type(module).forward, _settings(module), str(module))
        for name, module in model.named_modules()
    )
    values = [*model.named_parameters(), *model.named_buffers()]
    tensors = tuple((name, value.shape, value.dtype, str(value.device), value.requires_grad) for name, value in values)
    finite = all(bool(torch.isfinite(value).all()) for _, value in values if value.is_floating_point())
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    return modules, tensors, finite, hooks


def _is_described(model: nn.Module) -> bool:
    """Whether the attributes of all modules can be compared as text; functions and other objects cannot."""
    return all(isinstance(value, PLAIN) for module in model.modules() for value in _attributes(module).values())


def _settings(module: nn.Module) -> Hashable:
    return tuple(sorted((name, repr(value)) for name, value in _attributes(module).items()))


def _attributes(module: nn.Module) -> dict[str, Any]:
    """What a module holds besides its parameters, buffers and submodules, which have places of their own."""
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def _form(example: Any) -> str:
    """The shapes and types of an example, and everything in it that is not a tensor."""
    leaves, spec = pytree.tree_flatten(example)
    return repr([(leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]) + repr(spec)
