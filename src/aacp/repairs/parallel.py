"""ParallelRepair: weights for any set of kept units from the Gram matrices of the original, without a forward pass.

Each product whose inputs are cut gets the weights that come closest to its original output, in the mean over images,
if its remaining inputs are as in the original: W_S + W_P C_PS (C_SS + r I)^-1, for kept columns S and removed columns
P. Statistics of batch norms are not those of the repaired network: recalibration must follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.repairs.grams import Gram, Grams
from aacp.repairs.nested import NestedProducts, nested_products

RIDGE = 5e-5  # added to the diagonal of a covariance, relative to its mean, so that dependent columns can be solved
Repaired = dict[str, torch.Tensor]  # weights and biases in full size and double precision, by name


class ParallelRepair:
    """Repaired weights of any structure of one network.

    Args:
        grams: the Gram matrices of the original network.
        ranks: the rank of each unit within its group, 0 for the one that is removed last. Sets of units that keep the
            lowest ranks of each group are repaired faster than others.
        ridge: added to the diagonal of a covariance, relative to its mean.
    """

    def __init__(self, grams: Grams, ranks: NDArray[np.int64], ridge: float = RIDGE) -> None:
        self.grams = grams
        self._ranks = ranks
        self._ridge = ridge

    @cached_property
    def _in_order(self) -> tuple[NestedProducts, ...]:
        return nested_products(self.grams, self._ranks, self._ridge)

    @cached_property
    def _in_any_order(self) -> tuple[NestedProducts, ...]:
        return nested_products(self.grams, None, self._ridge)

    def weights(self, units: NDArray[np.bool_]) -> Repaired:
        """The repaired weights and biases, in full size and double precision; those of removed units are meaningless.

        Args:
            units: for each unit of the graph whether it is kept.
        """
        present = torch.from_numpy(np.append(units, True)).to(self.grams.images.device)
        return self.weights_where(present, self.are_in_order(units))

    def weights_where(self, present: torch.Tensor, are_in_order: bool) -> Repaired:
        """The same for kept units in a tensor; it does not wait for the device, so that it can be captured.

        Args:
            present: whether each unit is kept, on the device of the images; the last entry is True.
            are_in_order: whether the kept units are those of the lowest ranks.
        """
        found: Repaired = {}
        for products in self._in_order if are_in_order else self._in_any_order:
            for gram, matrix in products.matrices(present):
                found |= self._tensors(gram, matrix)
        return found

    def apply(self, tensors: Mapping[str, torch.Tensor], units: NDArray[np.bool_]) -> None:
        """Write the weights of a set of kept units into the tensors of a copy of the original, in place.

        Args:
            tensors: the tensors of the copy, by name.
            units: for each unit of the graph whether it is kept.
        """
        for name, repaired in self.weights(units).items():
            tensors[name].copy_(repaired)

    def are_in_order(self, units: NDArray[np.bool_]) -> bool:
        """Whether every group keeps the units of its lowest ranks."""
        groups = self.grams.graph.unit_groups
        counts = np.bincount(groups, weights=units)
        return bool((units == (self._ranks < counts[groups])).all())

    def _tensors(self, gram: Gram, matrix: torch.Tensor) -> Repaired:
        """A folded matrix as the weight and the bias of its product."""
        product = gram.product
        columns = gram.unfolded(matrix)
        found = {product.weight: product.tensor(columns)}
        if product.bias is not None:
            original = product.matrix(self.grams.weights[product.weight])
            constant = (original - columns) @ gram.mean[:, :, None]
            found[product.bias] = self.grams.weights[product.bias] + constant.flatten()
        return found
