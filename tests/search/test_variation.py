"""Small changes of gene vectors."""

import numpy as np

from aacp.channels.space import SearchSpace
from aacp.cost.budget import Budget
from aacp.search.rescaling import Rescaling
from aacp.search.variation import crossed, mutated, nudged, transferred


def test_mutation_moves_by_one_or_two_steps_at_its_rate() -> None:
    genes = np.full((4000, 5), 10)
    moves = mutated(genes, 0.25, np.random.default_rng(0)) - 10
    assert set(np.unique(moves)) == {-2, -1, 0, 1, 2}
    np.testing.assert_allclose((moves != 0).mean(), 0.25, atol=0.02)


def test_a_child_has_every_gene_from_one_parent_or_the_other() -> None:
    child = crossed(np.zeros((1000, 4), dtype=int), np.ones((1000, 4), dtype=int), np.random.default_rng(0))
    np.testing.assert_allclose(child.mean(axis=0), 0.5, atol=0.07)


def test_a_transfer_takes_from_one_run_of_groups_and_gives_to_another() -> None:
    moves = transferred(np.full((2000, 30), 10), np.random.default_rng(0)) - 10
    assert set(np.unique(moves)) <= {-2, -1, 0, 1, 2}
    assert (moves != 0).any(axis=1).mean() > 0.95  # now and then the two runs cancel
    assert (moves != 0).sum(axis=1).mean() < 5  # mostly one group to one group
    assert abs(moves.sum(axis=1).mean()) < 0.1


def test_nudging_leaves_new_rows_alone_and_makes_known_rows_new() -> None:
    space = SearchSpace.from_widths([30] * 6, pruning_step=1)
    known = {(5,) * 6}

    def is_new(rows):
        keys = [tuple(row) for row in rows.tolist()]
        return np.array([key not in known and key not in keys[:i] for i, key in enumerate(keys)])

    class Kept(Rescaling):
        """No limits: rescaling would only grow everything to the full width."""

        def __call__(self, genes, generator, form="shrink"):
            return super().__call__(genes, generator, "shrink")

    genes = np.array([[5] * 6, [7] * 6, [7] * 6])
    moved = nudged(genes, is_new, Kept(space, Budget()), np.random.default_rng(0))
    assert is_new(moved).all()
    assert (moved[1] == 7).all()
    assert np.abs(moved - genes).max() <= 4
