"""Variation: random changes of gene vectors that several methods share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aacp.search.rescaling import Genes, Rescaling

_Test = Callable[[Genes], NDArray[np.bool_]]

ATTEMPTS = 8  # the number of random moves that are tried on a known vector before it is kept unchanged


def nudged(genes: Genes, is_new: _Test, rescaling: Rescaling, generator: np.random.Generator) -> Genes:
    """The rows, where each row that is not new has random genes moved by one or two steps until it is new."""
    genes = genes.copy()
    for _ in range(ATTEMPTS):
        old = np.flatnonzero(~is_new(genes))
        if not len(old):
            break
        drawn = generator.integers(genes.shape[1], size=len(old))
        genes[old, drawn] += generator.choice([-2, -1, 1, 2], size=len(old))
        genes[old] = rescaling(genes[old], generator)
    return genes


def mutated(genes: Genes, rate: float, generator: np.random.Generator) -> Genes:
    """Each gene of each row moved with probability `rate` by one or two steps, up or down."""
    moves = generator.choice([-2, -1, 1, 2], size=genes.shape)
    return np.where(generator.random(genes.shape) < rate, genes + moves, genes)


def crossed(first: Genes, second: Genes, generator: np.random.Generator) -> Genes:
    """Rows that take each gene from either parent with equal probability."""
    return np.where(generator.random(first.shape) < 0.5, first, second)


def transferred(genes: Genes, generator: np.random.Generator) -> Genes:
    """Rows in which a few consecutive groups lose one or two steps, and a few others gain one or two."""
    # Neighbouring groups often need similar widths: changing one of them alone can hurt where changing all helps.
    genes = genes.copy()
    columns = np.arange(genes.shape[1])
    for sign in (-1, 1):
        first = generator.integers(genes.shape[1], size=(len(genes), 1))
        length = np.minimum(generator.geometric(0.5, size=first.shape), max(1, genes.shape[1] // 3))
        window = (first <= columns) & (columns < first + length)
        genes += sign * window * generator.integers(1, 3, size=first.shape)
    return genes
