"""Genes and counts are two names for one thing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aacp.space import SearchSpace


@given(st.lists(st.integers(1, 70), min_size=1, max_size=6), st.sampled_from([1 / 8, 1 / 3, 3, 8]), st.integers(0, 99))
def test_genes_and_counts_are_inverse_and_counts_are_choices(widths: list[int], step: float, seed: int) -> None:
    space = SearchSpace.from_widths(widths, step)
    genes = np.random.default_rng(seed).integers(space.levels, size=(5, len(space)))
    counts = space.counts(genes)
    assert (space.genes(counts) == genes).all()
    for row, gene in zip(counts, genes, strict=True):
        assert row.tolist() == [choice[g] for choice, g in zip(space.choices, gene, strict=True)]
        assert space.structure(gene).counts == tuple(row.tolist())
        assert space.structure(gene) in space
