"""Improved differential evolution, equation by equation, and whole generations of the released search."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aacp.bench.problems import Problem, equation_14
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.evolution import FIG3, IDE_PLUS, PAPER, RELEASED, EvolutionSettings, ImprovedDifferentialEvolution
from aacp.search.history import Candidate
from aacp.search.loop import run_search
from aacp.search.population import Population

SPACE = SearchSpace.from_widths([40] * 6, pruning_step=1)


def search_with(settings: EvolutionSettings, genes, scores=None) -> ImprovedDifferentialEvolution:
    """A search in the middle of its life, with this population; no limits."""
    search = ImprovedDifferentialEvolution(SPACE, Budget(), seed=0, settings=settings)
    genes = np.array(genes)
    search._population = Population.of(genes, list(range(len(genes))) if scores is None else scores)
    return search


def everyone(search: ImprovedDifferentialEvolution) -> np.ndarray:
    return np.arange(len(search._population))


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
    search = search_with(replace(PAPER, population=5), genes)
    mutants = search._mutated(everyone(search))
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
    assert (search._mutated(everyone(search)) == genes[2]).all()  # the lower index of the two best


def test_stochastic_rounding_is_unbiased_and_floor_is_not() -> None:
    genes = np.array([[20] * 6, [20] * 6, [21] * 6, [20] * 6])
    for rounding, low, high in (("stochastic", -0.05, 0.05), ("floor", -0.5, -0.05)):
        search = search_with(replace(PAPER, population=4, rounding=rounding), genes)
        exact = [genes[p] + 0.5 * (genes[q] - genes[r]) for p, q, r in ((0, 2, 1), (0, 1, 2), (2, 0, 1))]
        assert all(np.isin(vector, (19.5, 20.5, 21.0)).all() for vector in exact)
        sums = np.concatenate([search._mutated(everyone(search)) for _ in range(400)])
        # Over all parents the differences cancel, and the base is 20.25 on average.
        assert low <= sums.mean() - 20.25 <= high


def test_crossover_takes_genes_of_the_mutant_at_the_crossover_rate() -> None:
    """Eq. 11."""
    search = search_with(replace(PAPER, population=2000, crossover_rate=0.3), np.zeros((2000, 6), dtype=int))
    trials = search._crossed(everyone(search), np.ones((2000, 6), dtype=int))
    assert trials.mean() == pytest.approx(0.3, abs=4 * (0.21 / 12000) ** 0.5)
    never = search_with(replace(PAPER, crossover_rate=0.0), np.zeros((10, 6), dtype=int))
    assert not never._crossed(everyone(never), np.ones((10, 6), dtype=int)).any()
    forced = search_with(replace(PAPER, crossover_rate=0.0, force_one_gene=True), np.zeros((10, 6), dtype=int))
    assert (forced._crossed(everyone(forced), np.ones((10, 6), dtype=int)).sum(axis=1) == 1).all()


def test_selection_takes_only_what_is_strictly_fitter() -> None:
    """Eq. 12."""
    search = search_with(PAPER, np.zeros((4, 6), dtype=int), [1.0, 1.0, 1.0, 1.0])
    search._population.ages[:] = 2
    search._select(everyone(search), np.ones((4, 6), dtype=int), np.array([0.5, 1.0, 1.5, 2.0]))
    assert search._population.genes[:, 0].tolist() == [0, 0, 1, 1]
    assert search._population.scores.tolist() == [1.0, 1.0, 1.5, 2.0]
    assert search._population.ages.tolist() == [3, 3, 0, 0]


def test_individuals_unchanged_for_r_generations_are_drawn_anew() -> None:
    """Eq. 13."""
    genes = np.full((5, 6), 7)
    search = search_with(PAPER, genes, [1.0, 2.0, 3.0, 4.0, 5.0])
    search._population.ages[:] = [0, 3, 4, 9, 4]
    search._reinitialise(everyone(search))
    changed = (search._population.genes != 7).any(axis=1)
    assert changed.tolist() == [False, False, True, True, True]
    assert search._population.unscored.tolist() == changed.tolist()
    assert search._population.ages.tolist() == [0, 3, 0, 0, 0]


def test_protection_exempts_exactly_one_copy_of_the_best() -> None:
    search = search_with(FIG3, np.full((4, 6), 7), [1.0, 5.0, 5.0, 2.0])
    search._population.ages[:] = 4
    search._reinitialise(everyone(search))
    assert search._population.unscored.tolist() == [True, False, True, True]


def test_without_reinitialisation_nobody_is_drawn_anew() -> None:
    search = search_with(replace(PAPER, reinitialise_after=None), np.full((4, 6), 7))
    search._population.ages[:] = 1000
    search._reinitialise(everyone(search))
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


# -- the released search -----------------------------------------------------------------------------------------------


class Scripted:
    """A random generator that returns what a test has written down, and fails if the search draws anything else."""

    def __init__(self, draws: Sequence[tuple[str, Any]]) -> None:
        self.draws = list(draws)

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._next("random", shape)

    def integers(self, high: Any, size: Any) -> np.ndarray:
        return self._next("integers", (size,) if isinstance(size, int) else size)

    def _next(self, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, dtype=int)
        expected, values = self.draws.pop(0)
        drawn = np.array(values)
        assert (expected, drawn.shape) == (kind, shape)
        return drawn


def test_a_generation_of_the_released_search_computed_by_hand() -> None:
    """Counts are 2, 4, ..., 16; four individuals; F = 0.5 and CR = 0.8."""
    first = [[0, 0, 0], [7, 2, 4], [3, 5, 1], [1, 2, 6]]
    space = SearchSpace.from_widths([16, 16, 16], pruning_step=2)
    search = ImprovedDifferentialEvolution(space, Budget(), settings=replace(RELEASED, population=4))
    search.generator = Scripted(  # type: ignore[assignment]
        [
            ("integers", first),
            # Turn of individual 0. Parents 1, 3, 2: the best, 16 6 10, plus half of (4 6 14 - 8 12 4), is 14 3 15. In
            # steps of two channels that is 7, 1.5 and 7.5, rounded 7, 2 and 8. The first gene remains the individual's
            # own, because 0.9 is not below 0.8; so would the third, but it is the forced one.
            ("random", [[0.9, 0.1, 0.5, 0.3]]),
            ("random", [[0.9, 0.1, 0.95]]),
            ("integers", [2]),
            # Turn of individual 1. Parents 2, 0, 3: the new best, 2 4 16, plus half of (2 4 16 - 4 6 14), is 1 3 17. In
            # steps 0.5, 1.5 and 8.5, rounded 0, 2 and 8, and at least 1.
            ("random", [[0.2, 0.4, 0.1, 0.3]]),
            ("random", [[0.95, 0.1, 0.1]]),
            ("integers", [1]),
        ]
    )
    assert search.ask() == [Structure(row) for row in ([2, 2, 2], [16, 6, 10], [8, 12, 4], [4, 6, 14])]
    search.tell(zip(search.ask(), [0.1, 0.5, 0.2, 0.3], strict=True))
    assert search.ask() == [Structure([2, 4, 16])]
    search.tell([(Structure([2, 4, 16]), 0.6)])  # better than individual 0, and than the best
    assert search.ask() == [Structure([16, 4, 16])]
    search.tell([(Structure([16, 4, 16]), 0.5)])  # not better than individual 1
    assert search.generation == 1
    assert search._population.genes.tolist() == [[0, 1, 7], *first[1:]]
    assert search._population.ages.tolist() == [0, 1, 0, 0]


@pytest.mark.slow
def test_the_released_search_is_the_loop_written_out() -> None:
    """Eq. 14 with ten individuals, from the same random numbers, drawn in the order in which the text needs them."""
    problem = equation_14()
    search = ImprovedDifferentialEvolution(problem.space, problem.budget, seed=5, settings=RELEASED)
    while search.generation < 61:
        search.tell([(structure, problem.estimate(structure)) for structure in search.ask()])
    found = [tuple(candidate.structure) for candidate in search.history if candidate.generation <= 60]

    random = np.random.default_rng(5)

    def fitness(x: list[int]) -> float:
        return -(sum((gene - 14) ** 2 for gene in x) ** 0.5)  # gene 14 is x = 5

    population = random.integers(19, size=(10, 30)).tolist()
    scores = [fitness(x) for x in population]
    unchanged = [0] * 10
    best = max(population, key=fitness)
    evaluated = [*population]
    renewed = 0
    for _ in range(60):
        for n in range(10):
            is_stale = unchanged[n] >= 4
            if is_stale:
                population[n] = random.integers(19, size=(1, 30))[0].tolist()
                scores[n] = fitness(population[n])
                unchanged[n] = 0
                renewed += 1
            keys = random.random((1, 10))[0]
            _, q, r = sorted((i for i in range(10) if i != n), key=lambda i: keys[i])[:3]
            chances = random.random((1, 30))[0]
            forced = random.integers(30, size=1)[0]
            trial = list(population[n])
            for j in range(30):
                if chances[j] < 0.8 or j == forced:
                    # A step is one channel, and fractions of a channel are cut off.
                    trial[j] = min(18, max(0, int(best[j] + 1 + 0.5 * (population[q][j] - population[r][j])) - 1))
            evaluated += [trial, population[n]] if is_stale else [trial]
            best = max(best, trial, population[n], key=fitness)
            if fitness(trial) > scores[n]:
                population[n] = trial
                scores[n] = fitness(trial)
                unchanged[n] = 0
            else:
                unchanged[n] += 1
    assert renewed > 20
    assert found == list(dict.fromkeys(tuple(gene + 1 for gene in x) for x in evaluated))


def test_the_released_search_adds_to_the_best_ever_which_the_population_may_lose() -> None:
    settings = replace(RELEASED, population=4, differential_weight=0.0)
    search = search_with(settings, np.full((4, 6), 7), [1.0, 2.0, 3.0, 4.0])
    for number, (count, score) in enumerate([(30, 5.0), (20, 9.0), (10, 8.0)]):
        search.history.add(Candidate(number, 0, Structure([count] * 6), score))
    assert search._mutated(np.array([2])).tolist() == [[19] * 6]  # 20 channels


def test_the_base_of_the_released_search_never_gets_worse(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    search = ImprovedDifferentialEvolution(problem.space, problem.budget, seed=2, settings=RELEASED)
    bases = []
    original = search._bases
    monkeypatch.setattr(search, "_bases", lambda p: bases.append(original(p)) or bases[-1])
    while len(search.history) < 150:
        search.tell([(structure, problem.estimate(structure)) for structure in search.ask()])
    scores = [problem.estimate(problem.space.structure(base)) for base in bases]
    assert scores == sorted(scores)
    assert len(set(scores)) > 5  # the base has changed several times


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            2,
            [1, 1, 3, 3, 1],
        ),  # even: halves go to an even number of steps (2.7 steps are 5.4, cut to 5 channels)
        (3, [0, 1, 2, 3, 2]),  # odd: half a step has half a channel, which is cut off
        (1, [0, 1, 2, 3, 1]),  # one: every fraction is cut off
    ],
)
def test_nearest_rounding_is_that_of_the_released_code(step: int, expected: list[int]) -> None:
    """Genes of 0.5, 1.5, 2.5, 3.5 and 1.7, which are 1.5, 2.5, 3.5, 4.5 and 2.7 steps."""
    space = SearchSpace.from_widths([8 * step] * 5, pruning_step=step)
    search = ImprovedDifferentialEvolution(space, Budget(), settings=RELEASED)
    assert search._rounded(np.array([[0.5, 1.5, 2.5, 3.5, 1.7]])).tolist() == [expected]


def test_the_released_search_resumes_in_the_middle_of_a_generation(problem: Problem) -> None:
    whole = ImprovedDifferentialEvolution(problem.space, problem.budget, seed=1, settings=RELEASED)
    resumed = whole
    while len(whole.history) < 40:
        batch = whole.ask()
        if not whole.begins_generation and resumed is whole and len(whole.history) > 20:
            resumed = ImprovedDifferentialEvolution.from_state(problem.space, problem.budget, whole.state())
        whole.tell([(structure, problem.estimate(structure)) for structure in batch])
    assert resumed is not whole
    while len(resumed.history) < 40:
        resumed.tell([(structure, problem.estimate(structure)) for structure in resumed.ask()])
    assert resumed.state() == whole.state()


def test_a_generation_of_the_released_search_is_a_turn_of_every_individual(problem: Problem) -> None:
    search = ImprovedDifferentialEvolution(problem.space, problem.budget, settings=RELEASED)
    found = run_search(search, problem.estimate, generations=4)
    assert found.stopped == "generations"
    per_generation = [sum(candidate.generation == number for candidate in found.history) for number in range(4)]
    assert per_generation[0] == 10
    assert all(8 <= count <= 10 for count in per_generation[1:])  # a trial may be a structure that is known


@pytest.mark.slow
def test_on_equation_14_reinitialisation_decides_under_the_fig3_preset_and_the_text_fails() -> None:
    problem = equation_14()

    def best(settings: EvolutionSettings, generations: int, seed: int = 3) -> float:
        search = ImprovedDifferentialEvolution(problem.space, problem.budget, seed, settings)
        while (search.best is None or search.best.score < 0) and search.generation < generations:
            batch = search.ask()
            search.tell([(structure, problem.estimate(structure)) for structure in batch])
        assert search.best is not None
        return -search.best.score

    assert best(FIG3, 150) == 0
    assert best(replace(RELEASED, population=30), 150, seed=0) == 0
    assert best(replace(RELEASED, population=30, reinitialise_after=None), 60, seed=0) > 5
    assert best(replace(FIG3, reinitialise_after=None), 150) > 1
    assert best(PAPER, 150) > 5


@pytest.mark.parametrize(
    "wrong",
    [{"population": 3}, {"differential_weight": 2.5}, {"crossover_rate": -0.1}, {"reinitialise_after": 0}],
)
def test_settings_out_of_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match=str(next(iter(wrong.values())))):
        replace(PAPER, **wrong)
