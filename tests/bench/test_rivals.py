"""Bees, tournament, sensitivity, random and uniform search: each follows its rule."""

import numpy as np
import pytest

from aacp.bench.problems import Problem, equation_14, pruning_problem
from aacp.bench.rivals.bees import ABCPRUNER, BeeColony, BeeColonySettings, classical
from aacp.bench.rivals.sensitivity import SensitivityThreshold
from aacp.bench.rivals.tournament import Tournament, TournamentSettings
from aacp.channels.space import SearchSpace
from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.baselines import RandomSearch, RandomSearchSettings, UniformShrinkage
from aacp.search.loop import run_search
from aacp.search.population import Population


@pytest.mark.slow
def test_the_classical_colony_solves_equation_14_and_abcpruners_does_not() -> None:
    problem = equation_14()
    solved = BeeColony(problem.space, problem.budget, settings=classical(problem.space))
    stuck = BeeColony(problem.space, problem.budget)
    for search in (solved, stuck):
        run_search(search, problem.estimate, generations=500)
    assert solved.best is not None
    assert stuck.best is not None
    assert solved.best.score == 0
    assert stuck.best.score < -5


def test_a_classical_bee_changes_one_gene_and_abcpruners_changes_all() -> None:
    space = SearchSpace.from_widths([64] * 8, pruning_step=1)
    genes = np.random.default_rng(0).integers(64, size=(10, 8))
    for settings, least, most in ((classical(space, 10), 0, 1), (ABCPRUNER, 2, 8)):
        search = BeeColony(space, Budget(), settings=settings)
        search._sources = Population.of(genes, list(range(10)))
        changed = (search._neighbours(np.arange(10)) != genes).sum(axis=1)
        assert changed.max() <= most
        assert changed.mean() >= least


def test_onlookers_prefer_good_sources() -> None:
    space = SearchSpace.from_widths([8] * 3, pruning_step=1)
    search = BeeColony(space, Budget())
    search._sources = Population.of(np.zeros((10, 3), dtype=np.int64), [0.0] * 9 + [1.0])
    visits = np.bincount(np.concatenate([search._chosen() for _ in range(500)]), minlength=10)
    # 1.0 against nine times 0.1
    np.testing.assert_allclose(visits[9] / visits.sum(), 1 / 1.9, atol=0.04)


def test_a_source_is_given_up_after_more_than_five_trials_in_vain(problem: Problem) -> None:
    search, visits = BeeColony(problem.space, problem.budget), np.zeros(10, dtype=int)
    for generation in range(12):
        batch = search.ask()
        visits += np.bincount(search._visited, minlength=10)
        # Every score is worse than those before it, so that every visit is in vain.
        search.tell([(structure, -float(generation)) for structure in batch])
        if search._sources.unscored.any():
            break
    assert search._sources.unscored.tolist() == (visits > 5).tolist()
    assert generation % 2 == 0  # scouts fly after the onlookers


def test_uniform_shrinkage_is_one_structure_of_even_width() -> None:
    problem = pruning_problem("additive", "vgg16")
    result = run_search(UniformShrinkage(problem.space, problem.budget), problem.estimate, evaluations=10)
    assert result.stopped == "exhausted"
    assert len(result.history) == 1
    fractions = np.array(list(result.best.structure)) / np.array(problem.space.full)
    assert np.sort(np.abs(fractions - np.median(fractions)))[-2] <= 1 / 8  # all but what filled the budget up
    assert problem.budget.limits[0].slack(np.array(list(result.best.structure))) < 0.03


def test_the_tournament_keeps_the_best_of_both_generations(problem: Problem) -> None:
    search, scores = Tournament(problem.space, problem.budget), []
    for _ in range(6):
        results = [(structure, problem.estimate(structure)) for structure in search.ask()]
        search.tell(results)
        scores += [score for _, score in results]
        assert search._population.scores.tolist() == sorted(scores, reverse=True)[:10]


def test_sensitivity_keeps_wide_what_hurts() -> None:
    """Damage in a single group: that one ends wider than any other."""
    problem = pruning_problem("additive", "resnet20", images=None)
    search = SensitivityThreshold(problem.space, problem.budget)
    full = np.array(problem.space.full)

    def only_the_fourth_hurts(structure) -> float:
        return -((1 - structure[3] / full[3]) ** 2)

    result = run_search(search, only_the_fourth_hurts, evaluations=100)
    assert result.stopped == "exhausted"
    assert result.best.structure[3] == full[3]


def test_random_search_does_not_learn(problem: Problem) -> None:
    """Its tenth batch is not better than its first: with opposite scores, it proposes the same structures."""
    histories = []
    for sign in (1, -1):
        search = RandomSearch(problem.space, problem.budget, seed=3)
        run_search(search, lambda structure, sign=sign: sign * problem.estimate(structure), evaluations=100)
        histories.append([candidate.structure for candidate in search.history])
    assert histories[0] == histories[1]


def test_settings_that_leave_nobody_to_compete_with_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="1 food sources"):
        BeeColonySettings(sources=1)
    with pytest.raises(InvalidOption, match="population of 0"):
        TournamentSettings(population=0)
    with pytest.raises(InvalidOption, match="batch of 0"):
        RandomSearchSettings(batch=0)
