"""Program: a network as a list of operator calls, from torch.export."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from aacp.errors import UntraceableModel, first_line
from aacp.graph.assigned import AssignedInForward
from aacp.pytorch.internals import (
    assigns_data,
    calling_module,
    is_assigned_in_forward,
    is_operator,
    is_wrapped_block,
    lean_export,
    line_that_failed,
    operator_arguments,
    operator_name,
    placeholders,
    pytree,
    quiet_export,
)
from aacp.pytorch.modules import named_tensors


class UnsupportedUse(Exception):
    """Raised by a rule that does not know what to do with a call; the channels that enter the call are then frozen."""


class Call:
    """One operator call of a program: its operator, its arguments by name, its results and the module that made it."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node

    @cached_property
    def operator(self) -> str:
        """The name without overload: "relu" for aten.relu_.default, "mylib::gate" for operators of other libraries."""
        if not is_operator(self.node.target):
            return "getitem" if self.node.target is operator.getitem else str(self.node.target)
        name = operator_name(self.node.target).removeprefix("aten::")
        return name[:-1] if name.endswith("_") and not name.endswith("__") else name

    @property
    def function(self) -> Callable[..., Any]:
        assert callable(self.node.target)
        return self.node.target

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name, with the operator's defaults."""
        if not is_operator(self.node.target):
            return {}
        defaults = dict(operator_arguments(self.node.target))
        return defaults | dict(zip(defaults, self.node.args, strict=False)) | self.node.kwargs

    def __getitem__(self, name: str) -> Any:
        """An argument by name: a node if it is a tensor, else its value."""
        value = self.arguments[name]
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, fx.Node) and not is_tensor(item):
                raise UnsupportedUse(f"its argument {name!r} is computed while the network runs")
        return value

    def get(self, name: str) -> Any:
        """The same, or None if the operator has no argument of this name."""
        return self[name] if name in self.arguments else None

    def number(self, name: str) -> int:
        """An argument by name that must be a whole number, not a tensor."""
        value = self[name]
        if not isinstance(value, int):
            raise UnsupportedUse(f"its argument {name!r} is not a number")
        return value

    def reduced(self, rank: int) -> list[int]:
        """The dimensions that a reduction (sum, mean, maximum, ...) of a tensor of this rank removes."""
        dims = self.get("dim")
        if dims is None or dims == []:
            return list(range(rank))
        return [dim % max(1, rank) for dim in (dims if isinstance(dims, (list, tuple)) else [dims])]

    @property
    def tensors(self) -> list[fx.Node]:
        """The arguments that are tensors."""
        return [node for node in self.node.all_input_nodes if is_tensor(node)]

    @cached_property
    def module(self) -> str:
        """The path of the module whose code made the call."""
        return calling_module(self.node)

    @property
    def where(self) -> str:
        """The operator and the module that calls it, for messages."""
        return f"{self.operator} in {self.module or 'the network'}"

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.node)

    @property
    def outputs(self) -> list[torch.Tensor | None]:
        """The results of the call as tensors without data; None for results that are not tensors."""
        value = self.node.meta.get("val")
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        return [item if isinstance(item, torch.Tensor) else None for item in values]


def is_tensor(node: fx.Node) -> bool:
    """Whether a node stands for one tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The shape of the tensor that a node stands for."""
    return tuple(int(size) for size in node.meta["val"].shape)


@dataclass(frozen=True)
class Program:
    """A network as operator calls, and what each placeholder of the graph stands for."""

    graph: fx.Graph
    tensors: dict[str, str]  # placeholder -> parameter, buffer or tensor attribute of the module
    constants: dict[str, torch.Tensor]  # placeholder -> a tensor that does not belong to a module
    inputs: tuple[str, ...]  # placeholders of the caller's tensors, in order
    settings: dict[str, Any]  # placeholder -> an argument of the caller that is not a tensor, such as None
    output_spec: pytree.TreeSpec  # the containers in which the caller gets the results

    def calls(self) -> Iterator[Call]:
        for node in self.graph.nodes:
            if node.op == "call_function":
                yield Call(node)

    @property
    def results(self) -> list[fx.Node]:
        """The tensors the network returns."""
        return [leaf for leaf in self.result_leaves if isinstance(leaf, fx.Node)]

    @property
    def result_leaves(self) -> list[Any]:
        """Everything that the network returns, as a flat list of nodes and constants."""
        return pytree.tree_leaves(self.graph.output_node().args[0], is_leaf=lambda leaf: leaf is None)


def to_program(model: nn.Module, arguments: Sequence[Any]) -> Program:
    """The program of a model in evaluation mode; the export may change the model, so give a copy."""
    known = dict(named_tensors(model))
    try:
        with quiet_export(), lean_export(), torch.no_grad():
            exported = torch.export.export(model, tuple(arguments), strict=False)
    except Exception as error:  # whatever the model's code or the exporter raises
        if is_assigned_in_forward(error):
            raise AssignedInForward.by(type(model).__name__) from error
        line = line_that_failed(error)
        raise UntraceableModel(
            f"torch.export cannot trace {type(model).__name__}{f' ({line})' if line else ''}: {first_line(error)}. "
            "Remove control flow that depends on the data, or trace a part of the network without it."
        ) from error
    if any(assigns_data(node) for node in exported.graph.nodes):
        raise AssignedInForward.by(type(model).__name__)
    _inline_wrapped(exported.graph_module)
    tensors: dict[str, str] = {}
    constants: dict[str, torch.Tensor] = {}
    inputs: list[str] = []
    settings: dict[str, Any] = {}
    for placeholder in placeholders(exported):
        name, target = placeholder.name, placeholder.target
        if placeholder.is_setting:
            settings[name] = placeholder.value
        elif placeholder.is_input:
            inputs.append(name)
        elif target in known:
            tensors[name] = target
        elif target in exported.constants:
            constants[name] = exported.constants[target]
        else:
            tensors[name] = _first_name(model, known, target)
    return Program(
        exported.graph_module.graph, tensors, constants, tuple(inputs), settings, exported.call_spec.out_spec
    )


def _inline_wrapped(program: fx.GraphModule) -> None:
    """Inline the blocks under `with autocast` and `with no_grad`, which the exporter puts into graphs of their own."""
    for node in list(program.graph.nodes):
        if not is_wrapped_block(node):
            continue
        inner = next(position for position, argument in enumerate(node.args) if _is_block(argument))
        block = getattr(program, node.args[inner].target)
        _inline_wrapped(block)
        placeholders = [n for n in block.graph.nodes if n.op == "placeholder"]
        values = dict(zip(placeholders, node.args[inner + 1 :], strict=True))
        with program.graph.inserting_before(node):
            results = program.graph.graph_copy(block.graph, values)
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]
            program.graph.erase_node(user)
        program.graph.erase_node(node)


def _is_block(argument: Any) -> bool:
    return isinstance(argument, fx.Node) and argument.op == "get_attr"


def _first_name(model: nn.Module, known: dict[str, torch.Tensor], name: str) -> str:
    """The first name of a tensor that the exporter calls by another (shared weights have several)."""
    path, _, key = name.rpartition(".")
    tensor = getattr(model.get_submodule(path), key)
    return next(first for first, value in known.items() if value is tensor)
