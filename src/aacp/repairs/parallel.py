"""ParallelRepair: weights for any set of kept units from the Gram matrices of the original, without a forward pass.

Each product whose inputs are cut gets the weights that come closest to its original output, in the mean over images,
if its remaining inputs are as in the original: W_S + W_P C_PS (C_SS + r I)^-1, for kept columns S and removed columns
P. Statistics of batch norms are not those of the repaired network: recalibration must follow. One factorisation serves
all widths of a product that reads one group (`nested.py`); products that read several groups are solved for each set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.repairs.factors import ridge_factor
from aacp.repairs.grams import Gram, Grams
from aacp.repairs.nested import NestedProducts, are_nested, nested_products

RIDGE = 1e-6  # added to the diagonal of a covariance, relative to its mean, so that dependent columns can be solved
MEMO_BYTES = 1 << 30  # of repaired weights that are kept for further structures
Repaired = dict[str, torch.Tensor]  # weights and biases in full size, by name


class ParallelRepair:
    """Repaired weights of any structure of one network.

    A structure that keeps the units of the lowest ranks of each group needs no solve, except for products that read
    several groups. These, and all products of other sets of units, are solved once for each set of kept inputs: output
    channels do not matter, since they are only sliced, and a group has few widths in a search.

    Args:
        grams: the Gram matrices of the original network.
        ranks: the rank of each unit within its group, 0 for the one that is removed last; None: there is no order.
        ridge: added to the diagonal of a covariance, relative to its mean.
        memo_bytes: the size of the memo of solved weights; the least recently used weights leave it first.
    """

    def __init__(
        self,
        grams: Grams,
        ranks: NDArray[np.int64] | None = None,
        *,
        ridge: float = RIDGE,
        memo_bytes: int = MEMO_BYTES,
    ) -> None:
        self.grams = grams
        self.solved = 0  # the number of products solved so far
        self._ranks = ranks
        self._ridge = ridge
        self._room = memo_bytes
        self._memo: OrderedDict[tuple[str, bytes], Repaired] = OrderedDict()

    @cached_property
    def _nested(self) -> tuple[NestedProducts, ...]:
        assert self._ranks is not None
        return nested_products(self.grams, self.grams.graph, self._ranks, self._ridge)

    def weights(self, units: NDArray[np.bool_]) -> Repaired:
        """The repaired weights and biases, in full size; what belongs to removed units in them is meaningless.

        Args:
            units: for each unit of the graph whether it is kept.
        """
        present = torch.from_numpy(np.append(units, True))
        found: Repaired = {}
        if self._ranks is not None and are_nested(self.grams.graph, self._ranks, units):
            for products in self._nested:
                for gram, matrix in products.matrices(present.to(products.units.device)):
                    found |= self._tensors(gram, matrix)
        return found | self._solved_weights(present, [gram for gram in self.grams if gram.product.weight not in found])

    def _solved_weights(self, present: torch.Tensor, grams: Sequence[Gram]) -> Repaired:
        """The repaired weights of products that are solved for the inputs that they keep, if they lose any."""
        kept = {gram.product.weight: present[gram.units] for gram in grams}  # -1: the last entry
        keys = {name: np.packbits(mask.numpy()).tobytes() for name, mask in kept.items() if not bool(mask.all())}
        alike: dict[tuple[torch.Size, bytes], list[Gram]] = {}
        for name, key in keys.items():
            if (name, key) not in self._memo:
                gram = self.grams.grams[name]
                alike.setdefault((gram.covariance.shape, key), []).append(gram)
        for products in alike.values():
            self._solve(products, kept[products[0].product.weight])
        found: Repaired = {}
        for known in keys.items():
            found |= self._memo[known]
            self._memo.move_to_end(known)
        self._forget()
        return found

    def apply(self, tensors: Mapping[str, torch.Tensor], units: NDArray[np.bool_]) -> None:
        """Write the weights of a set of kept units into the tensors of a copy of the original, in place.

        Args:
            tensors: the tensors of the copy, by name.
            units: for each unit of the graph whether it is kept.
        """
        repaired = self.weights(units)
        for name in self.names:
            tensors[name].copy_(repaired.get(name, self.grams.weights[name]))

    @cached_property
    def names(self) -> list[str]:
        """The names of all tensors that repair may change."""
        products = [gram.product for gram in self.grams]
        return [name for product in products for name in (product.weight, product.bias) if name is not None]

    def _forget(self) -> None:
        """Drop what was used longest ago until the memo has its size."""
        while self._room < 0 and len(self._memo) > 1:
            _, oldest = self._memo.popitem(last=False)
            self._room += _bytes(oldest)

    def _solve(self, grams: list[Gram], kept: torch.Tensor) -> None:
        """Repair products that keep the same inputs, with covariances of one shape, and remember the results.

        Residual streams have many readers. On a GPU one factorisation of many small matrices takes as long as that of
        a single one.
        """
        originals = [self.grams.matrix(gram) for gram in grams]
        matrices = [original * kept.to(original.device)[:, None] for original in originals]
        for pattern, members in _patterns(kept, originals[0].device):
            stay, gone = (mask.nonzero().flatten().to(members.device) for mask in (pattern, ~pattern))
            if not len(stay) or not len(gone):
                continue
            covariances = torch.cat([gram.covariance[members] for gram in grams])
            shares = torch.split(regression(covariances, stay, gone, self._ridge), len(members))
            for original, matrix, share in zip(originals, matrices, shares, strict=True):
                lost = original[members][:, :, gone]
                matrix[members[:, None], :, stay] += (lost @ share).permute(0, 2, 1)
        key = np.packbits(kept.numpy()).tobytes()
        for gram, matrix in zip(grams, matrices, strict=True):
            repaired = self._tensors(gram, matrix)
            self._memo[gram.product.weight, key] = repaired
            self._room -= _bytes(repaired)
            self.solved += 1

    def _tensors(self, gram: Gram, matrix: torch.Tensor) -> Repaired:
        """A folded matrix as the weight and the bias of its product."""
        product = gram.product
        columns = gram.unfolded(matrix)
        weight = self.grams.weights[product.weight]
        found = {product.weight: product.tensor(columns).to(weight)}
        if product.bias is not None:
            bias = self.grams.weights[product.bias]
            constant = (product.matrix(weight).double() - columns) @ gram.mean[:, :, None]
            found[product.bias] = (bias.double() + constant.flatten()).to(bias)
        return found


def _patterns(kept: torch.Tensor, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The sets of inputs that groups of a convolution keep, each with the indices of the groups that keep it."""
    groups: dict[bytes, list[int]] = {}
    for group, row in enumerate(kept.numpy()):
        groups.setdefault(row.tobytes(), []).append(group)
    return [(kept[members[0]], torch.tensor(members, device=device)) for members in groups.values()]


def regression(covariance: torch.Tensor, stay: torch.Tensor, gone: torch.Tensor, ridge: float) -> torch.Tensor:
    """How removed columns follow from kept ones: C_PS C_SS^-1, of shape (groups, removed, kept).

    Args:
        covariance: (groups, columns, columns).
        stay: indices of the kept columns.
        gone: indices of the removed columns.
        ridge: added to the diagonal, relative to its mean.
    """
    factor = ridge_factor(covariance[:, stay[:, None], stay], ridge)
    return torch.cholesky_solve(covariance[:, stay[:, None], gone], factor).mT


def _bytes(repaired: Repaired) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in repaired.values())
