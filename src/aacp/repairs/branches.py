"""Branches: what happens to the output of a product until its channels mix or pass a non-linearity.

After a product, batch norms, scales and additions of other tensors change each element by itself: z = slope * y +
shift. If an added tensor (the shortcut of a residual block) is known already, a fit can aim at the sum: the product
then corrects what the pruned network lost in that tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import fx

from aacp.graph.masking import MaskedRun
from aacp.graph.program import Call, is_tensor, shape_of
from aacp.graph.propagation import Propagation
from aacp.pytorch.internals import is_mutable
from aacp.repairs.products import Product

UNCHANGED = {"dropout", "contiguous", "clone", "alias", "identity", "detach"}
RESHAPES = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "_unsafe_view", "unflatten"}
# Operators that are constant below the first number and above the second.
FLAT_BEYOND = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0), "hardswish": (-3.0, math.inf), "hardsigmoid": (-3.0, 3.0)}
MIN_SLOPE = 1e-6  # slope, as a share of the largest of a layer, below which a channel does not matter
Affine: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # slope and shift


@dataclass(frozen=True, eq=False)
class Branch:
    """The calls that follow a product one after another, and the bounds beyond which the next call is constant."""

    calls: tuple[Call, ...]
    lower: float = -math.inf
    upper: float = math.inf

    def affine(self, product: Product, run: MaskedRun, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Slope and shift from the output of the product to the end of the branch, in a form that broadcasts to
        (groups, rows, outputs), with the values of one run."""
        layout = _Layout(product, rows)
        slope = torch.ones((), device=rows.device)
        shift = torch.zeros_like(slope)
        before = product.node
        for call in self.calls:
            if call.operator == "batch_norm":
                scale, offset = (layout.of_channels(values, call) for values in norm_affine(run, call))
                slope = slope * scale
                shift = shift * scale + offset
            elif call.operator == "mul":
                factor = layout.at_rows(_other(run, call, before).expand(call.shape))
                slope = slope * factor
                shift = shift * factor
            elif call.operator == "add":
                shift = shift + layout.at_rows(_other(run, call, before))
            elif call.operator not in UNCHANGED:
                layout.follow(call, before)
            before = call.node
        return slope, shift


class _Layout:
    """The way from the layout of a tensor in a branch back to the sampled rows of its product."""

    def __init__(self, product: Product, rows: torch.Tensor) -> None:
        self._product = product
        self._rows = rows
        self._undo: list[Callable[[torch.Tensor], torch.Tensor]] = []

    def follow(self, call: Call, before: fx.Node) -> None:
        """Continue behind a call that moves elements."""
        if call.operator == "permute":
            dims = [dim % len(call.shape) for dim in call["dims"]]
            inverse = [dims.index(dim) for dim in range(len(dims))]
            self._undo.append(lambda value: value.permute(inverse))
        else:
            shape = shape_of(before)
            self._undo.append(lambda value: value.reshape(shape))

    def at_rows(self, value: torch.Tensor) -> torch.Tensor:
        """The elements of a tensor of this layout at the sampled rows, (groups, rows, outputs)."""
        return self._taken(value, self._rows)

    def of_channels(self, values: torch.Tensor, call: Call) -> torch.Tensor:
        """One value per channel of a batch norm, (groups, 1, outputs): the same in every row."""
        spread = values.reshape(1, -1, *[1] * (len(call.shape) - 2)).expand(call.shape)
        return self._taken(spread, self._rows[:1])

    def _taken(self, value: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        for undo in reversed(self._undo):
            value = undo(value)
        return self._product.outputs(value, rows).float()


@dataclass(frozen=True, eq=False)
class Goal:
    """What a product should compute for each row: `value`, or anything between `lower` and `upper`.

    Values that are clipped after the product need not be equal to those of the original, only clipped like them. In
    channels that the network multiplies by zero, everything is right.
    """

    value: torch.Tensor  # (groups, rows, outputs), as the next two
    lower: torch.Tensor
    upper: torch.Tensor
    matters: torch.Tensor  # which channels matter, in a form that broadcasts to the others

    @classmethod
    def of(cls, branch: Branch, outputs: torch.Tensor, original: Affine, pruned: Affine) -> Goal:
        """The goal that makes the pruned network compute at the end of a branch what the original computes there.

        Args:
            branch: the branch of the product.
            outputs: what the product computes in the original at the sampled rows, (groups, rows, outputs).
            original: slope and shift of the branch in the original.
            pruned: the same in the pruned network.
        """
        end = original[0] * outputs + original[1]
        matters = pruned[0].abs() > MIN_SLOPE * pruned[0].abs().max()
        slope = torch.where(matters, pruned[0], 1.0)
        value = (end - pruned[1]) / slope
        if math.isinf(branch.lower) and math.isinf(branch.upper):
            return cls(value, value, value, matters)
        # What is clipped in the original may lie anywhere beyond the bound, on the side that the slope says.
        bounds = [(bound - pruned[1]) / slope for bound in (branch.lower, branch.upper)]
        below, above = end <= branch.lower, end >= branch.upper
        rises = slope > 0
        lower = torch.where(below, torch.where(rises, -math.inf, bounds[0]), value)
        lower = torch.where(above, torch.where(rises, bounds[1], -math.inf), lower)
        upper = torch.where(below, torch.where(rises, bounds[0], math.inf), value)
        upper = torch.where(above, torch.where(rises, math.inf, bounds[1]), upper)
        return cls(value, lower, upper, matters)

    @property
    def is_exact(self) -> bool:
        """Whether there is one value for each row, because nothing is clipped."""
        return self.lower is self.upper

    def missing(self, outputs: torch.Tensor) -> torch.Tensor:
        """What outputs of the product lack to lie in their intervals."""
        return (torch.clamp(outputs, self.lower, self.upper) - outputs) * self.matters

    def missing_to_value(self, outputs: torch.Tensor) -> torch.Tensor:
        """What outputs of the product lack to have the value of the original."""
        return (self.value - outputs) * self.matters


def branch_of(product: Product, p: Propagation, known: Collection[fx.Node]) -> tuple[Branch, fx.Node | None]:
    """The branch of a product.

    Args:
        product: the product.
        p: the labelled program.
        known: the nodes whose values are there when the product is fitted.

    Returns:
        The branch, and the node that it lacks: the tensor that the next call adds, if it is not known yet.
    """
    calls: list[Call] = []
    node = product.node
    while len(node.users) == 1:
        call = Call(next(iter(node.users)))
        if call.node.op != "call_function" or not _is_affine(call, node, p):
            return Branch(tuple(calls), *_clip(call)), None
        if call.operator == "add":
            other = _other_node(call, node)
            assert other is not None
            if other not in known:
                return Branch(tuple(calls)), other
            if _is_overwritten(other, call.node):
                return Branch(tuple(calls)), None
        calls.append(call)
        node = call.node
    return Branch(tuple(calls)), None


def norm_affine(run: MaskedRun, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and shift of each channel that a batch norm in evaluation mode applies, in double precision."""
    mean = run.value(call["running_mean"]).double()
    scale = (run.value(call["running_var"]).double() + call["eps"]).rsqrt()
    if call["weight"] is not None:
        scale = scale * run.value(call["weight"]).double()
    shift = -mean * scale
    if call["bias"] is not None:
        shift = shift + run.value(call["bias"]).double()
    return scale, shift


def is_running_norm(call: Call) -> bool:
    """Whether a call is a batch norm that normalises by running statistics."""
    return call.operator == "batch_norm" and not call["training"] and call["running_mean"] is not None


def _is_affine(call: Call, source: fx.Node, p: Propagation) -> bool:
    """Whether a call changes each element of `source` by itself, with a slope that does not depend on the data."""
    if call.operator == "batch_norm":
        return is_running_norm(call) and call["input"] is source
    if call.operator == "dropout":
        return not call["train"]
    if call.operator in ("add", "mul"):
        other = _other_node(call, source)
        if other is None or call.shape != shape_of(source):
            return False
        if call.operator == "mul":
            return not p.is_activation(other)
        return call.get("alpha") == 1 and shape_of(other) == call.shape
    if call.operator in UNCHANGED or call.operator == "permute":
        return True
    return call.operator in RESHAPES and call.shape != () and is_tensor(call.node)


def _other_node(call: Call, source: fx.Node) -> fx.Node | None:
    """The other tensor that a sum or a product of two tensors reads."""
    nodes = [call["self"], call["other"]]
    others = [node for node in nodes if isinstance(node, fx.Node) and node is not source]
    return others[0] if len(others) == 1 and source in nodes else None


def _other(run: MaskedRun, call: Call, source: fx.Node) -> torch.Tensor:
    node = _other_node(call, source)
    assert node is not None
    value: torch.Tensor = run.value(node)
    return value


def _is_overwritten(node: fx.Node, by_then: fx.Node) -> bool:
    """Whether an operator in place changes the value of a node before the call `by_then` reads it, or might."""
    return any(is_mutable(user.target) and user is not by_then for user in node.users)


def _clip(call: Call) -> tuple[float, float]:
    """The bounds beyond which a call does not distinguish values of its input; infinite if it has none."""
    if call.operator in FLAT_BEYOND:
        return FLAT_BEYOND[call.operator]
    if call.operator == "hardtanh":
        return float(call["min_val"]), float(call["max_val"])
    if call.operator in ("clamp", "clamp_min"):
        lower, upper = call.get("min"), call.get("max")
        if not isinstance(lower, fx.Node) and not isinstance(upper, fx.Node):
            return -math.inf if lower is None else float(lower), math.inf if upper is None else float(upper)
    return -math.inf, math.inf
