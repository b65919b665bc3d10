"""The exported form: a cut network as a graph of operators, for networks whose code does not run with other widths.

It computes what the module would compute in evaluation mode, on inputs of the example's shape.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from aacp.channels.graph import ChannelGraph
from aacp.data.examples import tensors_in
from aacp.graph.assembly import Assembled
from aacp.graph.program import Program
from aacp.graph.propagation import Propagation, SizeUse
from aacp.graph.slicing import sliced_tensors
from aacp.pytorch.internals import operator_arguments, pytree
from aacp.pytorch.modules import named_tensors


class GraphNetwork(nn.Module):
    """A graph of operators that is called like the module it was exported from."""

    inputs: tuple[str, ...] = ()  # the names of that module's arguments, in order

    def __init__(
        self, body: fx.GraphModule, output_spec: pytree.TreeSpec, names: dict[str, str], inputs: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.body = body
        self.output_spec = output_spec
        self.names = names  # the names that the tensors have in that module
        self.inputs = inputs

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the graph; arguments by name are put in the order that the module has them in."""
        unknown = named.keys() - set(self.inputs[len(arguments) :])
        if unknown:
            raise TypeError(f"{type(self).__name__} got unexpected arguments: {', '.join(sorted(unknown))}")
        return super().__call__(*arguments, *(named[name] for name in self.inputs if name in named))

    def forward(self, *arguments: Any) -> Any:
        return pytree.tree_unflatten(self.body(*tensors_in(arguments)), self.output_spec)


def cut_exported(
    model: nn.Module, p: Propagation, assembled: Assembled, graph: ChannelGraph, units: NDArray[np.bool_]
) -> GraphNetwork:
    """The program with sliced weights and other sizes among its arguments.

    Args:
        model: the network that the program was exported from.
        p: the propagation over the program.
        assembled: the graph of that propagation, and the unit of every channel id.
        graph: the graph to cut along; it may have more frozen groups.
        units: a mask over all units (True: the unit stays).
    """
    stays = np.append(units, True)[assembled.unit_of_id]
    weights = dict(named_tensors(model))
    smaller = sliced_tensors(model, graph, units)
    body = fx.Graph()
    holder = nn.Module()
    values: dict[fx.Node, fx.Node] = {}
    for node in p.program.graph.nodes:
        if node.op == "placeholder" and node.name not in p.program.inputs:
            value = _tensor(p.program, node, weights, smaller)
            if value is not None:
                _attach(holder, node.name, value)
                values[node] = body.get_attr(node.name)
        elif node.op != "output":
            values[node] = body.node_copy(node, lambda source: values[source])
    for use in p.sizes:
        _rewrite(values[use.node], use, stays)
    body.output([values.get(leaf, leaf) for leaf in p.program.result_leaves])
    inputs = tuple(inspect.signature(model.forward).parameters)
    return GraphNetwork(fx.GraphModule(holder, body), p.program.output_spec, p.program.tensors, inputs)


def _tensor(
    program: Program, node: fx.Node, weights: dict[str, torch.Tensor], smaller: dict[int, torch.Tensor]
) -> torch.Tensor | None:
    """The tensor that a placeholder stands for; None if it stands for an argument."""
    if node.name in program.constants:
        return program.constants[node.name]
    name = program.tensors.get(node.name)
    return None if name is None else smaller[id(weights[name])]


def _attach(holder: nn.Module, name: str, value: torch.Tensor) -> None:
    if isinstance(value, nn.Parameter):
        holder.register_parameter(name, value)
    else:
        holder.register_buffer(name, value)


def _rewrite(node: fx.Node, use: SizeUse, stays: NDArray[np.bool_]) -> None:
    """Replace a size among the arguments of a node."""
    kept = int((stays[np.maximum(use.lane, 0)] | (use.lane < 0)).sum())
    value = kept if use.value > 0 else -kept
    name, position = use.argument
    place = [argument for argument, _ in operator_arguments(node.target)].index(name)
    old = node.args[place] if place < len(node.args) else node.kwargs[name]
    new: Any = value
    if position is not None:
        new = [*old]  # type: ignore[misc]
        new[position] = value
    if place < len(node.args):
        node.update_arg(place, new)
    else:
        node.update_kwarg(name, new)
