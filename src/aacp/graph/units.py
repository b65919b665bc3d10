"""UnitProgram: the program of a network for inputs of one shape, with the unit of every channel id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from aacp.channels.graph import ChannelGraph
from aacp.errors import InvalidOption
from aacp.graph.labels import core, ids_of, varying
from aacp.graph.program import Program, shape_of, to_program
from aacp.graph.propagation import Propagation
from aacp.graph.unverified import analyse
from aacp.pytorch.modules import copy_module


@dataclass(frozen=True, eq=False)
class UnitProgram:
    """A labelled program, and the unit of the channel graph that each channel id belongs to."""

    propagation: Propagation
    unit_of_id: NDArray[np.int64]  # -1: always present; the last entry is -1, so that id -1 selects it

    @classmethod
    def of(cls, model: nn.Module, graph: ChannelGraph, arguments: Sequence[Any]) -> UnitProgram:
        """The program of a network in evaluation mode for arguments of these shapes; the network is not changed."""
        if graph.parts:
            raise InvalidOption(
                f"{type(model).__name__} was traced in parts ({', '.join(graph.parts)}), but this (repair, "
                "importance by activations or obs, error curves, or masked execution) needs the program of the "
                "whole network. Use reconstruction=None (--reconstruction none), the importance l1 and another method."
            )
        program = to_program(copy_module(model).eval(), arguments)
        propagation, _ = analyse(program, None, model, graph.form, graph)
        return cls(propagation, units_of_ids(propagation, graph))

    @property
    def program(self) -> Program:
        return self.propagation.program

    def present_ids(self, units: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which channel ids are present if these units are kept, as `MaskedRun` takes them."""
        present: NDArray[np.bool_] = np.append(units, True)[self.unit_of_id[:-1]]
        return present

    @property
    def all_ids(self) -> NDArray[np.bool_]:
        """The channel ids that are present if all units are kept: every one of them."""
        return np.ones(len(self.unit_of_id) - 1, dtype=bool)

    def units_along(self, node: fx.Node, dim: int) -> NDArray[np.int64]:
        """The unit of each index along a dimension of a tensor; -1 where the index is always present."""
        for label in self.propagation.labels_of(node):
            if dim in varying(label):
                # If a label varies along other dimensions too, the channels that share an index are tied: one unit.
                first = core(label).movedim(dim, 0).reshape(label.size(dim), -1)[:, 0]
                found: NDArray[np.int64] = self.unit_of_id[first.numpy()]
                return found
        return np.full(shape_of(node)[dim], -1, dtype=np.int64)

    def units_of_elements(self, node: fx.Node) -> list[torch.Tensor]:
        """For each label of a tensor that holds units: the unit of its elements, in a shape that broadcasts."""
        units = [torch.from_numpy(self.unit_of_id)[core(label)] for label in self.propagation.labels_of(node)]
        return [unit for unit in units if bool((unit >= 0).any())]


def units_of_ids(p: Propagation, graph: ChannelGraph) -> NDArray[np.int64]:
    """The unit of every channel id, found through the weights that graph and program share; -1: always present."""
    roots = p.ties.roots()
    unit_of_root = np.full(len(roots) + 1, -1, dtype=np.int64)
    for tensor in graph.tensors:
        for label in p.weights.get(tensor.name, ()):
            (dim,) = varying(label)
            lane = tensor.lanes[dim]
            if lane is not None:
                unit_of_root[roots[ids_of(label)]] = graph.lanes[lane]
    return np.append(unit_of_root[roots], -1)
