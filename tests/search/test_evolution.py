"""Improved differential evolution, equation by equation."""

from dataclasses import replace

import numpy as np
import pytest

from aacp.bench.problems import Problem, equation_14
from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.evolution import FIG3, IDE_PLUS, PAPER, EvolutionSettings, ImprovedDifferentialEvolution
from aacp.search.population import Population
from aacp.space import SearchSpace

SPACE = SearchSpace.from_widths([40] * 6, pruning_step=1)


def search_with(settings: EvolutionSettings, genes, scores=None) -> ImprovedDifferentialEvolution:
    """A search in the middle of its life, with this population; no limits."""
    search = ImprovedDifferentialEvolution(SPACE, Budget(), seed=0, settings=settings)
    genes = np.array(genes)
    search._population = Population.of(genes, list(range(len(genes))) if scores is None else scores)
    return search


def test_the_defaults_are_the_papers() -> None:
    assert (PAPER.population, PAPER.differential_weight, PAPER.crossover_rate, PAPER.reinitialise_after) == (
        10,
        0.5,
        0.8,
        4,
    )
    assert ImprovedDifferentialEvolution(SPACE, Budget()).settings == PAPER


def test_the_first_population_is_drawn_evenly_from_the_space() -> None:
    """Eq. 8."""
    search = ImprovedDifferentialEvolution(SPACE, Budget(), settings=replace(PAPER, population=3000))
    genes = search.propose()
    assert genes.shape == (3000, 6)
    assert genes.min() == 0
    assert genes.max() == 39
    np.testing.assert_allclose(genes.mean(axis=0), 19.5, atol=4 * 11.5 / 3000**0.5)


def test_mutation_adds_a_weighted_difference_of_two_others_to_a_third() -> None:
    """Eq. 10, checked by finding the parents of every mutant by trying all."""
    generator = np.random.default_rng(0)
    genes = generator.integers(10, 30, size=(5, 6))
    mutants = search_with(replace(PAPER, population=5), genes)._mutated()
    for n, mutant in enumerate(mutants):
        others = [i for i in range(5) if i != n]
        possible = [
            np.clip(np.floor(genes[p] + 0.5 * (genes[q] - genes[r])), 0, 39)
            for p in others
            for q in others
            for r in others
            if len({p, q, r}) == 3
        ]
        assert any((mutant == expected).all() for expected in possible)


def test_the_best_is_the_base_where_the_preset_says_so() -> None:
    genes = np.arange(60).reshape(10, 6) % 30
    search = search_with(replace(FIG3, population=10, differential_weight=0.0), genes, [0, 1, 9, 3, 9, 5, 6, 7, 8, 4])
    assert (search._mutated() == genes[2]).all()  # the lower index of the two best


def test_stochastic_rounding_is_unbiased_and_floor_is_not() -> None:
    genes = np.array([[20] * 6, [20] * 6, [21] * 6, [20] * 6])
    for rounding, low, high in (("stochastic", -0.05, 0.05), ("floor", -0.5, -0.05)):
        search = search_with(replace(PAPER, population=4, rounding=rounding), genes)
        exact = [genes[p] + 0.5 * (genes[q] - genes[r]) for p, q, r in ((0, 2, 1), (0, 1, 2), (2, 0, 1))]
        assert all(np.isin(vector, (19.5, 20.5, 21.0)).all() for vector in exact)
        sums = np.concatenate([search._mutated() for _ in range(400)])
        # Over all parents the differences cancel, and the base is 20.25 on average.
        assert low <= sums.mean() - 20.25 <= high


def test_crossover_takes_genes_of_the_mutant_at_the_crossover_rate() -> None:
    """Eq. 11."""
    search = search_with(replace(PAPER, population=2000, crossover_rate=0.3), np.zeros((2000, 6), dtype=int))
    trials = search._crossed(np.ones((2000, 6), dtype=int))
    assert trials.mean() == pytest.approx(0.3, abs=4 * (0.21 / 12000) ** 0.5)
    never = search_with(replace(PAPER, crossover_rate=0.0), np.zeros((10, 6), dtype=int))
    assert not never._crossed(np.ones((10, 6), dtype=int)).any()
    forced = search_with(replace(PAPER, crossover_rate=0.0, force_one_gene=True), np.zeros((10, 6), dtype=int))
    assert (forced._crossed(np.ones((10, 6), dtype=int)).sum(axis=1) == 1).all()


def test_selection_takes_only_what_is_strictly_fitter() -> None:
    """Eq. 12."""
    search = search_with(PAPER, np.zeros((4, 6), dtype=int), [1.0, 1.0, 1.0, 1.0])
    search._population.ages[:] = 2
    search._select(np.ones((4, 6), dtype=int), np.array([0.5, 1.0, 1.5, 2.0]))
    assert search._population.genes[:, 0].tolist() == [0, 0, 1, 1]
    assert search._population.scores.tolist() == [1.0, 1.0, 1.5, 2.0]
    assert search._population.ages.tolist() == [3, 3, 0, 0]


def test_individuals_unchanged_for_r_generations_are_drawn_anew() -> None:
    """Eq. 13."""
    genes = np.full((5, 6), 7)
    search = search_with(PAPER, genes, [1.0, 2.0, 3.0, 4.0, 5.0])
    search._population.ages[:] = [0, 3, 4, 9, 4]
    search._reinitialise()
    changed = (search._population.genes != 7).any(axis=1)
    assert changed.tolist() == [False, False, True, True, True]
    assert search._population.unscored.tolist() == changed.tolist()
    assert search._population.ages.tolist() == [0, 3, 0, 0, 0]


def test_protection_exempts_exactly_one_copy_of_the_best() -> None:
    search = search_with(FIG3, np.full((4, 6), 7), [1.0, 5.0, 5.0, 2.0])
    search._population.ages[:] = 4
    search._reinitialise()
    assert search._population.unscored.tolist() == [True, False, True, True]


def test_without_reinitialisation_nobody_is_drawn_anew() -> None:
    search = search_with(replace(PAPER, reinitialise_after=None), np.full((4, 6), 7))
    search._population.ages[:] = 1000
    search._reinitialise()
    assert not search._population.unscored.any()


def test_reinitialised_individuals_are_evaluated_with_the_next_generation(problem: Problem) -> None:
    search = ImprovedDifferentialEvolution(problem.space, problem.budget, settings=replace(PAPER, reinitialise_after=1))
    sizes = []
    for _ in range(4):
        batch = search.ask()
        sizes.append(len(batch))
        search.tell([(structure, problem.estimate(structure)) for structure in batch])
    assert sizes[0] == 10
    assert max(sizes) > 10
    assert not np.isnan(search._population.scores[search._population.ages > 0]).any()


def test_ide_plus_begins_with_seven_shapes_and_never_repeats_itself(problem: Problem) -> None:
    search = ImprovedDifferentialEvolution(problem.space, problem.budget, settings=IDE_PLUS)
    for _ in range(8):
        batch = search.ask()
        assert len(batch) >= 9  # a duplicate is nudged into something new
        search.tell([(structure, problem.estimate(structure)) for structure in batch])


@pytest.mark.slow
def test_on_equation_14_reinitialisation_decides_under_the_fig3_preset_and_the_text_fails() -> None:
    problem = equation_14()

    def best(settings: EvolutionSettings, generations: int) -> float:
        search = ImprovedDifferentialEvolution(problem.space, problem.budget, seed=3, settings=settings)
        while search.generation < generations and (batch := search.ask()):
            search.tell([(structure, problem.estimate(structure)) for structure in batch])
        assert search.best is not None
        return -search.best.score

    assert best(FIG3, 150) == 0
    assert best(replace(FIG3, reinitialise_after=None), 150) > 1
    assert best(PAPER, 150) > 5


@pytest.mark.parametrize(
    "wrong",
    [{"population": 3}, {"differential_weight": 2.5}, {"crossover_rate": -0.1}, {"reinitialise_after": 0}],
)
def test_settings_out_of_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match=str(next(iter(wrong.values())))):
        replace(PAPER, **wrong)
