"""NestedProducts: the repaired weights of products for any set of kept columns, in shapes that never change.

Units leave a group in a fixed order, so the columns that a product keeps of its *main* group are the first ones in that
order. With the Cholesky factor L of the covariance in that order, C_PS C_SS^-1 is L_PS L_SS^-1, so the repaired weights
W_S + W_P C_PS C_SS^-1 are (W L)_S (L_SS)^-1. The inverse of L_SS is the corner of the inverse of L: a mask and one
product of matrices give the weights of any width.
A product that reads several groups, after a concatenation or a padded shortcut, then loses columns R of the *other*
groups. With K = C_SS^-1 of the columns kept so far, its weights become W - W_R (K_RR)^-1 K_R (optimal brain surgeon).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.repairs.factors import ridge_factor
from aacp.repairs.grams import Gram, Grams


@dataclass(frozen=True, eq=False)
class NestedProducts:
    """Products whose matrices have the same shape, repaired together; each group of a convolution is a matrix.

    Args:
        grams: the products.
        units: the unit of each column, in the order of the factors; -1: always present.
        others: the number of columns, the first ones, that may be removed in any order.
        spread: the weights times the factor of the covariance, with columns in the order of the factors.
        inverse: the inverse of the factor.
        places: for each column of the weights its place in the order of the factors.
    """

    grams: Sequence[Gram]
    units: torch.Tensor
    others: int
    spread: torch.Tensor
    inverse: torch.Tensor
    places: torch.Tensor

    @classmethod
    def of(
        cls, grams: Grams, products: Sequence[Gram], keys: torch.Tensor, others: int, ridge: float
    ) -> NestedProducts:
        """Factorise the covariances of products.

        Args:
            grams: where the products are from.
            products: products whose matrices have the same shape.
            keys: for each column of each matrix the key by which columns are sorted.
            others: the number of columns that may be removed in any order; their keys are the lowest.
            ridge: added to the diagonal of a covariance, relative to its mean.
        """
        device = products[0].covariance.device
        order = keys.argsort(dim=1, stable=True)
        units = torch.cat([gram.units for gram in products]).gather(1, order).to(device)
        order = order.to(device)
        covariance = torch.cat([gram.covariance for gram in products])
        rows = order[:, :, None].expand_as(covariance)
        factor = ridge_factor(covariance.gather(1, rows).gather(2, _columns(order, covariance)), ridge)
        matrix = torch.cat([grams.matrix(gram) for gram in products])
        spread = matrix.gather(2, _columns(order, matrix)) @ factor
        identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=device)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return cls(products, units, others, spread, inverse, order.argsort(dim=1))

    def matrices(self, present: torch.Tensor) -> Iterator[tuple[Gram, torch.Tensor]]:
        """The repaired matrix of each product, folded like its covariance; removed inputs have zeros up to rounding.

        Args:
            present: whether each unit is kept, on the device of the products; the last entry is True.
        """
        kept = present[self.units].to(self.spread)
        in_order = kept.clone()
        in_order[:, : self.others] = 1.0  # they are removed afterwards
        repaired = (self.spread * in_order[:, None]) @ self.inverse
        if self.others:
            repaired = self._without_others(repaired, self.inverse * in_order[:, :, None], 1 - kept[:, : self.others])
        repaired = repaired.gather(2, _columns(self.places, repaired))
        yield from zip(self.grams, torch.split(repaired, [len(gram.units) for gram in self.grams]), strict=True)

    def _without_others(self, repaired: torch.Tensor, inverse: torch.Tensor, gone: torch.Tensor) -> torch.Tensor:
        """Weights from which columns of other groups are removed.

        Args:
            repaired: the weights before.
            inverse: the inverse of the factor, without the rows of columns that are removed already.
            gone: 1 for each of the `others` that is removed, else 0.
        """
        precision = inverse[:, :, : self.others].mT @ inverse * gone[:, :, None]
        block = precision[:, :, : self.others] * gone[:, None] + torch.diag_embed(1 - gone)
        # `torch.cholesky_solve` cannot be captured as a CUDA graph; two triangular solves can.
        factor, _ = torch.linalg.cholesky_ex(block)
        lost = repaired[:, :, : self.others] * gone[:, None]
        half_solved = torch.linalg.solve_triangular(factor, lost.mT, upper=False)
        solved: torch.Tensor = torch.linalg.solve_triangular(factor.mT, half_solved, upper=True)
        return repaired - solved.mT @ precision


def nested_products(grams: Grams, ranks: NDArray[np.int64] | None, ridge: float) -> tuple[NestedProducts, ...]:
    """All products of a network, those with matrices of the same shape together.

    Args:
        grams: the Gram matrices of the network.
        ranks: the rank of each unit within its group, 0 for the one that is removed last; None if there is no order,
            so that every column may be removed at any time.
        ridge: added to the diagonal of a covariance, relative to its mean.
    """
    alike: dict[tuple[torch.Size, torch.Size, int], list[tuple[Gram, torch.Tensor]]] = {}
    groups = _free_groups(grams)
    for gram in grams:
        others, keys = _sorting_keys(gram, groups, ranks)
        shape = (gram.covariance.shape[1:], grams.matrix(gram).shape[1:], others)
        alike.setdefault(shape, []).append((gram, keys))
    found = []
    for (_, _, others), products in alike.items():
        keys = torch.cat([keys for _, keys in products])
        found.append(NestedProducts.of(grams, [gram for gram, _ in products], keys, others, ridge))
    return tuple(found)


def _free_groups(grams: Grams) -> torch.Tensor:
    """The group of each unit, -1 if it is frozen; the last entry is -1."""
    graph = grams.graph
    return torch.from_numpy(np.append(np.where(graph.free_units, graph.unit_groups, -1), -1))


def _sorting_keys(gram: Gram, groups: torch.Tensor, ranks: NDArray[np.int64] | None) -> tuple[int, torch.Tensor]:
    """How many columns of a product may be removed in any order, and keys: first these, then frozen, then by rank."""
    read = groups[gram.units]
    main = torch.stack([_most_frequent(row[row >= 0]) for row in read])
    is_main = read == main[:, None]
    is_other = (read >= 0) & ~is_main
    counts = is_other.sum(dim=1)
    if ranks is None or bool((counts != counts[0]).any()):  # one number of columns for all groups of a convolution
        return read.shape[1], torch.zeros_like(read)
    by_rank = torch.from_numpy(np.append(ranks, 0))[gram.units]
    return int(counts[0]), torch.where(is_main, by_rank, torch.where(is_other, -2, -1))


def _most_frequent(values: torch.Tensor) -> torch.Tensor:
    return values.mode().values if len(values) else torch.tensor(-2)


def _columns(order: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return order[:, None].expand(-1, matrix.shape[1], -1)
