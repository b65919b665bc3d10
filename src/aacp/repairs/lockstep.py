"""Lock-step: original and pruned network run side by side, and each product is fitted before the pruned one runs it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from aacp.graph.masking import MaskedRun
from aacp.graph.program import Call
from aacp.graph.units import UnitProgram
from aacp.pytorch.modules import named_tensors
from aacp.repairs.branches import Branch, Goal, is_running_norm
from aacp.repairs.least_squares import Weights, fitted
from aacp.repairs.norms import SeenNorms
from aacp.repairs.parts import Part
from aacp.repairs.products import Product, count_uses, products_of, sample_rows
from aacp.repairs.schedule import Schedule

MAX_ROWS = 65_536  # output positions that a product is fitted on at most
MAX_VALUES = 1 << 26  # values that all these positions read together at most
CLIPPED_STEPS = 5  # of a fit to intervals, after the one to the values of the original
COPIES_OF_COLUMNS = 16  # bytes for each sampled value: it is gathered, arranged, selected and centred
NOTHING = 1e-10  # mean square of what a product lacks, as a share of its variance, that is rounding


class LockStep:
    """Both networks on all images at once, as runs of one program at full width.

    Args:
        labelled: the program for these images.
        original: the unpruned network.
        pruned: a network of the same shapes whose weights are the start; they are changed in place.
        units: a mask of the units that the pruned network keeps.
    """

    def __init__(self, labelled: UnitProgram, original: nn.Module, pruned: nn.Module, units: NDArray[np.bool_]) -> None:
        ids = labelled.present_ids(units)
        self._program = labelled.program
        self._original = MaskedRun(labelled.propagation, np.ones_like(ids))
        self._pruned = MaskedRun(labelled.propagation, ids)
        self._models = (original, pruned)
        self._tensors = {name: value.detach() for name, value in named_tensors(pruned)}
        self._present = torch.from_numpy(np.append(units, True))
        self._uses = count_uses(labelled.program)
        self._norms = SeenNorms(labelled.program)
        products, notes = products_of(labelled, original)
        self.notes: list[str] = notes
        self.schedule = Schedule.of(labelled.propagation, products)

    def run(self, inputs: list[torch.Tensor]) -> list[str]:
        """Repair the weights of the pruned network and restate its batch norms; returns the notes."""
        self._present = self._present.to(inputs[0].device)
        for run, model in zip((self._original, self._pruned), self._models, strict=True):
            run.start(model, [tensor.clone() for tensor in inputs])  # the program may write into its inputs
        for node in self.schedule.order:
            result = self._original.step(node)
            call = Call(node)
            if node in self.schedule.products:
                self._fit(self.schedule.products[node], self.schedule.branches[node], result)
            elif is_running_norm(call):
                self._norms.arrive(call, self._pruned.value(call["input"]))
            self._pruned.step(node)
        return self.notes + self._norms.restate(self._tensors)

    def peak_bytes(self) -> int:
        """The most memory that both runs need at once, about: activations, and the columns of the widest product."""
        readers = {node: len(node.users) for node in self._program.graph.nodes}
        live = sum(_bytes(node) for node in readers if node.name in self._program.inputs)
        peak = live
        for node in self.schedule.order:
            live += _bytes(node)
            peak = max(peak, live)
            for source in node.all_input_nodes:
                readers[source] -= 1
                if not readers[source] and source.op == "call_function":
                    live -= _bytes(source)
        products = self.schedule.products.values()
        sampled = [min(p.row_count, _row_limit(p)) * p.column_units.numel() for p in products]
        return 2 * peak + COPIES_OF_COLUMNS * max(sampled, default=0)

    def _fit(self, product: Product, branch: Branch, result: torch.Tensor) -> None:
        """Fit a product to what the original computes."""
        part = Part.of(product, self._present)
        rows = self._rows(product).to(result.device)
        if not len(part.groups) or not len(rows):
            return
        columns = part.read(self._pruned.value(product.source), rows)
        goal = self._goal(part, branch, result, rows)
        weight = self._tensors[product.weight]
        bias = None if product.bias is None else self._tensors[product.bias]
        takes = self._constant_taker(product)
        start = part.weights(weight, bias)
        if _is_reached(goal, columns, start):
            return
        if len(rows) < len(part.columns):
            self.notes.append(
                f"{product.call.where} is fitted on {len(rows)} rows, fewer than the {len(part.columns)} values that "
                "each output reads: where they do not decide, the ridge keeps the inherited weights."
            )
        steps = [goal.missing_to_value] * 2 + [goal.missing] * (0 if goal.is_exact else CLIPPED_STEPS)
        found = fitted(columns, start, steps, takes is not None)
        part.write(found.matrix, weight)
        if takes is not None:
            tensor, sign = takes
            tensor += sign * part.spread(found.constant - start.constant.double()).to(tensor.dtype)

    def _rows(self, product: Product) -> torch.Tensor:
        """The sampled rows of a product that the pruned network has."""
        rows = sample_rows(product.row_count, _row_limit(product))
        mask = product.present_rows(self._present)
        return rows if mask is None else rows[mask.to(rows.device)[rows]]

    def _goal(self, part: Part, branch: Branch, result: torch.Tensor, rows: torch.Tensor) -> Goal:
        product = part.product
        outputs = part.of_rows(product.outputs(result, rows).float())
        original, pruned = (branch.affine(product, run, rows) for run in (self._original, self._pruned))
        return Goal.of(
            branch,
            outputs,
            (part.of_rows(original[0]), part.of_rows(original[1])),
            (part.of_rows(pruned[0]), part.of_rows(pruned[1])),
        )

    def _constant_taker(self, product: Product) -> tuple[torch.Tensor, int] | None:
        """The tensor that takes the constant of a fit, and the sign with which it does; None if there is none.

        It is the bias, or else the running mean of the batch norm that alone reads the product.
        """
        if product.bias is not None:
            return (self._tensors[product.bias], 1) if self._uses[product.bias] == 1 else None
        if len(product.node.users) != 1:
            return None
        call = Call(next(iter(product.node.users)))
        if call.node.op != "call_function" or not is_running_norm(call):
            return None
        name = self._program.tensors.get(call["running_mean"].name)
        return (self._tensors[name], -1) if name is not None and self._uses[name] == 1 else None


def _row_limit(product: Product) -> int:
    """How many rows of a product are sampled at most."""
    return max(1, min(MAX_ROWS, MAX_VALUES // product.column_units.numel()))


def _bytes(node: fx.Node) -> int:
    """The memory of the results of a call; that of a view is counted too, so this is an upper bound."""
    return sum(value.numel() * value.element_size() for value in Call(node).outputs if value is not None)


def _is_reached(goal: Goal, columns: torch.Tensor, start: Weights) -> bool:
    """Whether a product computes what it should already, up to rounding."""
    outputs = columns @ start.matrix + start.constant
    lacking = goal.missing_to_value(outputs).square().mean()
    return bool(lacking <= NOTHING * (outputs.square().mean() + 1e-30))
