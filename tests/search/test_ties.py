"""Searches of spaces with tied groups: fewer genes, full structures."""

from __future__ import annotations

import json

import numpy as np
import pytest

import aacp
from aacp.bench.networks import resnet
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.cost.quadratic import QuadraticForm
from aacp.pipeline.searching import better_known
from aacp.search.history import Candidate, History
from aacp.search.methods import METHODS, needs_curves, searcher
from aacp.search.rescaling import Rescaling
from aacp.search.seeds import largest, seeds

NETWORK = resnet(20)
WIDTHS = NETWORK.widths
EQUAL = [position for position, width in enumerate(WIDTHS) if width == 16][:3]
UNEQUAL = [WIDTHS.index(16, EQUAL[-1] + 1), WIDTHS.index(32), WIDTHS.index(64)]
TIED = SearchSpace.from_widths(WIDTHS, ties=[EQUAL, UNEQUAL])
ROUNDED = SearchSpace.from_widths(WIDTHS, 6, ties=[EQUAL, UNEQUAL])  # 6, 12, 16 of 16; 6, ..., 30, 32 of 32
BUDGET = Budget(Limit(NETWORK.macs(), pruning_rate=0.5), Limit(NETWORK.params(), pruning_rate=0.4))


def score(structure: Structure) -> float:
    return float(np.sqrt(np.asarray(structure) / np.array(WIDTHS)).mean())


def keeps_the_ties(structure: Structure) -> bool:
    shares = np.asarray(structure) / np.array(WIDTHS)
    return len(set(shares[EQUAL])) == 1 and len(set(shares[UNEQUAL])) == 1


@pytest.mark.parametrize("method", [name for name in METHODS if not needs_curves(name)])  # see test_curves.py
def test_every_method_proposes_full_structures_that_keep_the_ties(method: str) -> None:
    search = searcher(method, TIED, BUDGET, seed=1)
    assert len(TIED) == len(WIDTHS) - 4
    for _ in range(3):
        batch = search.ask()
        for structure in batch:
            assert len(structure) == len(WIDTHS)
            assert keeps_the_ties(structure)
            assert BUDGET.feasible(structure)
        state = json.loads(json.dumps(search.state()))
        assert type(search).from_state(TIED, BUDGET, state).ask() == batch
        search.tell([(structure, score(structure)) for structure in batch])
    assert len(search.history) >= 1


@pytest.mark.parametrize("space", [TIED, ROUNDED])
def test_rescaling_uses_the_budget_up_by_steps_of_all_tied_groups(space: SearchSpace) -> None:
    rescaling = Rescaling(space, BUDGET)
    generator = np.random.default_rng(0)
    genes = rescaling(generator.integers(space.levels, size=(40, len(space))), generator)
    assert BUDGET.feasible(space.counts(genes)).all()
    for row in genes:
        assert space.structure(row) in space
        for gene in np.flatnonzero(row < space.levels - 1):
            wider = row.copy()
            wider[gene] += 1
            assert not BUDGET.feasible(space.counts(wider))


def test_a_cost_is_a_polynomial_in_the_genes_only_if_tied_groups_are_not_rounded_apart() -> None:
    rows = np.random.default_rng(1).integers(TIED.levels, size=(200, len(TIED)))
    for cost in (NETWORK.macs(), NETWORK.params()):
        form = QuadraticForm.fit(cost, TIED)
        assert form is not None
        np.testing.assert_allclose(form.values(TIED.leading_counts(rows).astype(float)), cost(TIED.counts(rows)))
    assert QuadraticForm.fit(NETWORK.macs(), ROUNDED) is None


def test_polynomials_and_costs_judge_every_limit_alike() -> None:
    """A wrong polynomial would go unnoticed in results, which are checked by the cost, and only take longer."""
    genes = np.random.default_rng(2).integers(TIED.levels, size=(200, len(TIED)))
    broken = [~limit.holds(limit.cost(TIED.counts(genes))) for limit in BUDGET.limits]
    assert 0 < np.sum(broken) < 400
    rescaling = Rescaling(TIED, BUDGET)
    np.testing.assert_array_equal(rescaling._breaks(genes), broken)
    wider = genes[:, None] + np.eye(len(TIED), dtype=np.int64)  # one step up in each gene
    is_legal = (wider < TIED.levels).all(axis=2)
    fits = BUDGET.feasible(TIED.counts(np.minimum(wider, TIED.levels - 1).reshape(-1, len(TIED))))
    np.testing.assert_array_equal(rescaling._fits_by_form(genes), is_legal & fits.reshape(is_legal.shape))


@pytest.mark.parametrize("space", [TIED, ROUNDED])
def test_uniform_widths_are_the_largest_common_share_within_the_budget(space: SearchSpace) -> None:
    genes = largest(np.ones(len(space)), Rescaling(space, BUDGET))
    shares = space.counts(genes) / np.array(WIDTHS)
    coarsest = max(max(np.diff(choice)) / choice[-1] for choice in space.choices)
    assert shares.max() - shares.min() <= 1.5 * coarsest
    assert BUDGET.feasible(space.counts(genes))


def test_seeds_have_a_gene_for_each_tie() -> None:
    assert seeds(Rescaling(TIED, BUDGET), np.random.default_rng(0)).shape == (7, len(TIED))


def test_structures_of_a_search_without_ties_are_starts_that_keep_them() -> None:
    apart = searcher("default", SearchSpace.from_widths(WIDTHS), BUDGET, seed=0)
    apart.tell([(structure, score(structure)) for structure in apart.ask()])
    assert not all(keeps_the_ties(candidate.structure) for candidate in apart.history)
    search = searcher("default", TIED, BUDGET, seed=0, known=apart.history)
    assert all(keeps_the_ties(structure) for structure in search.ask())


def test_a_better_known_structure_that_breaks_a_tie_does_not_win() -> None:
    broken = list(TIED.smallest)
    broken[EQUAL[0]] += 2
    kept = Candidate(0, 0, TIED.smallest, 0.5)
    known = History([kept, Candidate(1, 0, Structure(broken), 0.9)])
    assert better_known(known, BUDGET, TIED, 0.1) == kept


def test_a_search_is_not_resumed_with_other_ties() -> None:
    search = searcher("random", TIED, BUDGET, seed=1)
    search.ask()
    other = SearchSpace.from_widths(WIDTHS, ties=[EQUAL])
    with pytest.raises(aacp.RunMismatch, match="choices"):
        type(search).from_state(other, BUDGET, search.state())


def test_a_cost_that_has_no_polynomial_is_obeyed_with_ties() -> None:
    peak = Cost("peak", "", 64.0, lambda rows: rows.max(axis=1))
    budget = Budget(Limit(peak, pruning_rate=0.5))
    generator = np.random.default_rng(0)
    genes = Rescaling(TIED, budget)(generator.integers(TIED.levels, size=(10, len(TIED))), generator)
    assert (TIED.counts(genes).max(axis=1) <= 32).all()
