"""Products: the calls of a program that multiply activations by a parameter, as matrix products over sampled rows.

At each sampled output position (a *row*) a product reads some values (its *columns*) and multiplies them by a matrix
that holds its weight. A transposed convolution is the ordinary convolution of its input with zeros between the
elements; a linear layer has one tap, and its rows are all its leading dimensions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from aacp.channels.graph import ChannelGraph
from aacp.data.examples import Shapes, shapes_of, tensors_in
from aacp.errors import InvalidData, UntraceableModel
from aacp.graph.program import Call, Program, shape_of
from aacp.graph.units import UnitProgram
from aacp.pytorch.modules import named_tensors, positional
from aacp.repairs.windows import Window

CONVOLUTIONS = {f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)}
OTHER_PRODUCTS = {"matmul", "mm", "bmm", "addmm", "baddbmm", "mv", "einsum", "bilinear", "__matmul__"}


@dataclass(frozen=True, eq=False)
class Product:
    """A call that multiplies activations by a parameter: a convolution, a transposed one or a linear layer."""

    call: Call
    weight: str  # the name of the weight in the model
    bias: str | None
    groups: int
    window: Window | None  # None: a linear layer
    column_units: torch.Tensor  # (groups, columns): the unit that each column belongs to; -1: always present
    output_units: torch.Tensor  # (groups, outputs): the same for the outputs
    row_units: tuple[torch.Tensor, ...]  # units that lie along other dimensions of the output; see `present_rows`

    @property
    def node(self) -> fx.Node:
        """The node of the call, whose value is the output."""
        return self.call.node

    @property
    def source(self) -> fx.Node:
        """The node whose value is the input."""
        node: fx.Node = self.call["input"]
        return node

    @property
    def taps(self) -> int:
        return self.window.taps if self.window is not None else 1

    @property
    def channel_dim(self) -> int:
        """The dimension of the output that holds the channels."""
        return len(self.call.shape) - 1 - (len(self.window.kernel) if self.window is not None else 0)

    @property
    def row_count(self) -> int:
        """The number of rows of one call: all output positions of all its examples, image after image."""
        return math.prod(self.call.shape) // self.call.shape[self.channel_dim]

    # -- activations ---------------------------------------------------------------------------------------------------

    def columns(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """What each row reads of the input, as (groups, rows, inputs per group * taps)."""
        if self.window is None:
            return x.reshape(-1, x.shape[-1])[rows][None]
        images = self._batched(x).flatten(2)
        image = rows // self.window.positions
        index, inside = self.window.reads(rows % self.window.positions)
        read = images[image[:, None], :, index]  # (rows, taps, inputs)
        if not bool(inside.all()):
            read *= inside[:, :, None]
        return read.reshape(len(rows), self.taps, self.groups, -1).permute(2, 0, 3, 1).flatten(2)

    def outputs(self, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The values of an output, or of a tensor of its shape, at the rows, as (groups, rows, outputs per group)."""
        if self.window is None:
            return y.reshape(-1, y.shape[-1])[rows][None]
        positions = self.window.positions
        taken = self._batched(y).flatten(2)[rows // positions, :, rows % positions]
        return taken.reshape(len(rows), self.groups, -1).movedim(1, 0)

    def present_rows(self, present: torch.Tensor) -> torch.Tensor | None:
        """Which rows are present; None if all are. Only a linear layer along another dimension has absent rows.

        Args:
            present: whether each unit is kept, with one more entry at the end, which is True.
        """
        if not self.row_units:
            return None
        shape = [*self.call.shape]
        shape[self.channel_dim] = 1
        mask = torch.ones(shape, dtype=torch.bool, device=present.device)
        for units in self.row_units:
            mask &= present[units.to(present.device)]
        return None if bool(mask.all()) else mask.flatten()

    def _batched(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.channel_dim == 1 else x[None]

    # -- weights -------------------------------------------------------------------------------------------------------

    def matrix(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight as (groups, outputs per group, inputs per group * taps)."""
        if self._is_transposed:
            return weight.reshape(self.groups, -1, weight.shape[1], self.taps).transpose(1, 2).flatten(2)
        return weight.reshape(self.groups, len(weight) // self.groups, -1)

    def tensor(self, matrix: torch.Tensor) -> torch.Tensor:
        """The inverse of `matrix`."""
        shape = shape_of(self.call["weight"])
        if self._is_transposed:
            return matrix.reshape(self.groups, shape[1], -1, self.taps).transpose(1, 2).reshape(shape)
        return matrix.reshape(shape)

    @property
    def _is_transposed(self) -> bool:
        return self.window is not None and self.window.transposed


def sample_rows(count: int, limit: int, seed: int = 0) -> torch.Tensor:
    """Sorted indices of at most `limit` of `count` rows: one at random from each of `limit` equal stretches."""
    if count <= limit:
        return torch.arange(count)
    generator = torch.Generator().manual_seed(seed)
    place = torch.arange(limit, dtype=torch.float64) + torch.rand(limit, generator=generator, dtype=torch.float64)
    return (place * (count / limit)).long().clamp_(max=count - 1)


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of a network for images of several shapes, each with the result of `products_of`."""

    model: nn.Module
    graph: ChannelGraph
    _known: dict[Shapes, tuple[UnitProgram, list[Product], list[str]]] = field(default_factory=dict)

    def of(self, inputs: Any) -> tuple[UnitProgram, list[Product], list[str]]:
        """The program for inputs of these shapes."""
        shapes = shapes_of(inputs)
        if shapes not in self._known:
            labelled = labelled_program(self.model, self.graph, inputs)
            self._known[shapes] = labelled, *products_of(labelled, self.model)
        return self._known[shapes]


def labelled_program(model: nn.Module, graph: ChannelGraph, inputs: Any) -> UnitProgram:
    """The program of a network for inputs of these shapes."""
    try:
        return UnitProgram.of(model, graph, positional(model, inputs))
    except UntraceableModel as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_in(inputs))
        raise InvalidData(
            f"{type(model).__name__} does not run on images of shape {shapes} ({error}). "
            "Give images of the shape that it was made for."
        ) from error


def products_of(labelled: UnitProgram, model: nn.Module) -> tuple[list[Product], list[str]]:
    """The products of a program in the order of execution, and a note for each product that is none of them."""
    found: list[Product] = []
    notes: list[str] = []
    parameters = {name for name, value in named_tensors(model) if isinstance(value, nn.Parameter)}
    uses = count_uses(labelled.program)
    for call in labelled.program.calls():
        if call.operator in CONVOLUTIONS or call.operator == "linear":
            problem = _problem(labelled, call, parameters, uses)
            if problem is None:
                found.append(_product(labelled, call))
            elif problem:
                notes.append(f"{call.where} is left as inherited: {problem}.")
        elif call.operator in OTHER_PRODUCTS and _multiplies_by(labelled, call, parameters):
            notes.append(f"{call.where} is left as inherited: repair fits convolutions and linear layers only.")
    return found, list(dict.fromkeys(notes))


def _problem(labelled: UnitProgram, call: Call, parameters: set[str], uses: Mapping[str, int]) -> str | None:
    """Why a convolution or linear layer cannot be repaired; empty if it holds nothing to be repaired."""
    names = labelled.program.tensors
    weight = names.get(call["weight"].name)
    if weight is None:
        computed = not labelled.propagation.is_activation(call["weight"])
        return "its weight is computed from parameters" if computed else "its weight is computed from activations"
    if weight not in parameters or not labelled.propagation.is_activation(call["input"]):
        return ""
    if uses[weight] > 1:
        return f"{weight} is used several times"
    if call["bias"] is not None and names.get(call["bias"].name) not in parameters:
        return "its bias is computed"
    return None


def _product(labelled: UnitProgram, call: Call) -> Product:
    bias = None if call["bias"] is None else labelled.program.tensors[call["bias"].name]
    window = Window.of(call) if call.operator in CONVOLUTIONS else None
    groups = (call["groups"] or 1) if window is not None else 1
    dim = len(call.shape) - 1 - (len(window.kernel) if window is not None else 0)
    inputs = torch.from_numpy(labelled.units_along(call["input"], dim)).reshape(groups, -1)
    outputs = torch.from_numpy(labelled.units_along(call.node, dim)).reshape(groups, -1)
    elsewhere = [units for units in labelled.units_of_elements(call.node) if units.shape[dim] == 1]
    return Product(
        call=call,
        weight=labelled.program.tensors[call["weight"].name],
        bias=bias,
        groups=groups,
        window=window,
        column_units=inputs.repeat_interleave(window.taps if window is not None else 1, dim=1),
        output_units=outputs,
        row_units=tuple(elsewhere),
    )


def count_uses(program: Program) -> Counter[str]:
    """How many calls read each tensor of the model."""
    uses: Counter[str] = Counter()
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.tensors:
            uses[program.tensors[node.name]] += len(node.users)
    return uses


def _multiplies_by(labelled: UnitProgram, call: Call, parameters: set[str]) -> bool:
    """Whether a call reads activations and a parameter."""
    names = [labelled.program.tensors.get(node.name) for node in call.tensors]
    active = [node for node in call.tensors if labelled.propagation.is_activation(node)]
    return bool(active) and any(name in parameters for name in names)
