"""Nested repair: one factorisation of a product's covariance gives its repaired weights for every width.

If the units of a group are always removed in the same order, the kept columns S of a product that reads this group are
the first columns in that order. With the Cholesky factor L of the covariance in that order, C_PS C_SS^-1 is
L_PS L_SS^-1, so the repaired weights W_S + W_P C_PS C_SS^-1 are (W L)_S (L_SS)^-1. The inverse of L_SS is the corner of
the inverse of L: a mask and one product of matrices whose shapes never change give the weights of any width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.channels import ChannelGraph
from aacp.repairs.factors import ridge_factor
from aacp.repairs.grams import Gram, Grams


@dataclass(frozen=True, eq=False)
class NestedProducts:
    """Products whose matrices have the same shape, repaired together; each group of a convolution is a matrix.

    Args:
        grams: the products.
        units: the unit of each column, in the order of removal, the last removed first; -1: always present.
        spread: the weights times the factor of the covariance, with columns in that order.
        inverse: the inverse of the factor: its rows are in that order, its columns in the order of the weights.
    """

    grams: Sequence[Gram]
    units: torch.Tensor
    spread: torch.Tensor
    inverse: torch.Tensor

    @classmethod
    def of(cls, grams: Grams, products: Sequence[Gram], ranks: torch.Tensor, ridge: float) -> NestedProducts:
        """Factorise the covariances of products.

        Args:
            grams: where the products are from.
            products: products whose matrices have the same shape.
            ranks: the rank of each unit in its group, 0 for the one that is removed last; the last entry is -1.
            ridge: added to the diagonal of a covariance, relative to its mean.
        """
        device = products[0].covariance.device
        units = torch.cat([gram.units for gram in products])
        order = ranks[units].argsort(dim=1, stable=True)
        units = units.gather(1, order).to(device)
        order = order.to(device)
        covariance = torch.cat([gram.covariance for gram in products])
        covariance = covariance.gather(1, _rows(order, covariance)).gather(2, _columns(order, covariance))
        factor = ridge_factor(covariance, ridge)
        matrix = torch.cat([grams.matrix(gram) for gram in products])
        spread = matrix.gather(2, _columns(order, matrix)) @ factor
        identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=device)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return cls(products, units, spread, inverse.gather(2, _columns(order.argsort(dim=1), inverse)))

    def matrices(self, present: torch.Tensor) -> Iterator[tuple[Gram, torch.Tensor]]:
        """The repaired matrix of each product, folded like its covariance, with zeros for removed inputs.

        Args:
            present: whether each unit is kept, on the device of the products; the last entry is True.
        """
        masked = self.spread * present[self.units][:, None]
        repaired = masked @ self.inverse
        yield from zip(self.grams, torch.split(repaired, [len(gram.units) for gram in self.grams]), strict=True)


def nested_products(
    grams: Grams, graph: ChannelGraph, ranks: NDArray[np.int64], ridge: float
) -> tuple[NestedProducts, ...]:
    """The products that read one free group at most, or one in each group of a convolution, by the shape of matrices.

    Args:
        grams: the Gram matrices of the network.
        graph: its channel graph.
        ranks: the rank of each unit within its group, 0 for the one that is removed last.
        ridge: added to the diagonal of a covariance, relative to its mean.
    """
    is_free = np.array([group.frozen is None for group in graph.groups])[graph.unit_groups]
    free_groups = torch.from_numpy(np.append(np.where(is_free, graph.unit_groups, -1), -1))
    padded = torch.from_numpy(np.append(np.where(is_free, ranks, -1), -1))
    alike: dict[tuple[torch.Size, torch.Size], list[Gram]] = {}
    for gram in grams:
        if all(len(set(row.tolist()) - {-1}) <= 1 for row in free_groups[gram.units]):
            alike.setdefault((gram.covariance.shape[1:], grams.matrix(gram).shape[1:]), []).append(gram)
    return tuple(NestedProducts.of(grams, products, padded, ridge) for products in alike.values())


def are_nested(graph: ChannelGraph, ranks: NDArray[np.int64], units: NDArray[np.bool_]) -> bool:
    """Whether every group keeps the units of its lowest ranks."""
    counts = np.bincount(graph.unit_groups, weights=units, minlength=len(graph.groups))
    return bool((units == (ranks < counts[graph.unit_groups])).all())


def _rows(order: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return order[:, :, None].expand(-1, -1, matrix.shape[2])


def _columns(order: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return order[:, None].expand(-1, matrix.shape[1], -1)
