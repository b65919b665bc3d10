"""The default search: what it proposes and what it recommends."""

import math
from dataclasses import replace

import numpy as np
import pytest

from aacp.bench.compare import true_scores
from aacp.bench.problems import Problem, pruning_problem
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidOption
from aacp.search import guided
from aacp.search.gaussian import GaussianProcess
from aacp.search.guided import (
    GuidedEvolution,
    GuidedEvolutionSettings,
    log_expected_improvement,
    without_outliers,
)
from aacp.search.loop import run_search
from aacp.search.methods import searcher
from aacp.search.rescaling import Rescaling
from aacp.search.ridge import RidgeRegression
from small_problem import small_problem


@pytest.mark.parametrize(("mean", "deviation"), [(0.5, 0.2), (1.4, 0.1), (0.0, 0.25), (1.0, 1.0)])
def test_expected_improvement_is_its_integral(mean: float, deviation: float) -> None:
    scores = np.linspace(1.0, mean + 12 * deviation + 1, 400_001)
    density = np.exp(-0.5 * ((scores - mean) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
    integral = float(np.trapezoid((scores - 1.0) * density, scores))
    found = log_expected_improvement(np.array([mean]), np.array([deviation]), best=1.0)[0]
    assert found == pytest.approx(math.log(integral), abs=1e-4)


def test_far_below_the_best_improvement_is_still_ordered() -> None:
    means = np.linspace(0.99, -30, 200)
    values = log_expected_improvement(means, np.full(200, 0.1), best=1.0)
    assert np.isfinite(values).all()
    assert (np.diff(values) < 0).all()


def test_it_begins_with_the_seeds_and_then_asks_for_one_at_a_time(problem: Problem) -> None:
    search = GuidedEvolution(problem.space, problem.budget)
    sizes = []
    for _ in range(4):
        batch = search.ask()
        sizes.append(len(batch))
        search.tell([(structure, problem.estimate(structure)) for structure in batch])
    assert sizes == [10, 1, 1, 1]


@pytest.mark.slow
def test_after_fifty_evaluations_it_is_ahead_of_the_papers_search_after_two_hundred() -> None:
    one = pruning_problem("random", "vgg16", seed=11)
    assert true_scores("default", one, 0, [50])[0] > true_scores("paper", one, 0, [200])[0]


@pytest.mark.slow
def test_the_recommendation_is_a_quarter_score_and_three_quarters_model(problem: Problem) -> None:
    search = GuidedEvolution(problem.space, problem.budget, seed=1)
    result = run_search(search, problem.estimate, evaluations=40)
    counts = np.array([list(candidate.structure) for candidate in result.history])
    scores = np.array([candidate.score for candidate in result.history])
    widths = counts / np.array(problem.space.full)
    means = GaussianProcess(widths, scores, search._kernel).predict(widths)[0]
    assert result.recommended == result.history[int(np.argmax(0.25 * scores + 0.75 * means))]


@pytest.mark.slow
def test_with_many_groups_and_evaluations_the_likelier_model_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guided, "RIDGE_MIN_GROUPS", 5)
    monkeypatch.setattr(guided, "RIDGE_MIN_EVALUATIONS", 20)
    problem = pruning_problem("additive", "resnet20", seed=2)
    search = GuidedEvolution(problem.space, problem.budget)
    choices = set()
    for _ in range(25):
        search.tell([(structure, sum(structure) / 1000) for structure in search.ask()])
        if search._fitted == len(search.history) - 1 and search._fitted > 20:
            widths, scores = (part[: search._fitted] for part in by_number(search))
            likelier = RidgeRegression(widths, scores).evidence > GaussianProcess(widths, scores).evidence
            assert search._use_ridge == likelier
            choices.add(search._use_ridge)
    assert True in choices  # a linear score is what ridge regression is made for
    assert isinstance(search._model(), RidgeRegression)
    assert search.recommended in list(search.history)


def by_number(search: GuidedEvolution) -> tuple[np.ndarray, np.ndarray]:
    """Widths and scores in the order of proposal."""
    counts = np.array([list(candidate.structure) for candidate in search.history])
    return counts / np.array(search.space.full), np.array([candidate.score for candidate in search.history])


@pytest.mark.parametrize("name", ["batch", "random", "offspring"])
def test_settings_below_one_are_rejected(name: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        replace(GuidedEvolutionSettings(), **{name: 0})


def test_one_very_low_score_does_not_hide_the_differences_between_the_others() -> None:
    problem = small_problem()
    found = run_search(
        searcher("default", problem.space, problem.budget, seed=1),
        lambda structure: score if (score := problem.estimate(structure)) > 0.5 else -1000.0,
        evaluations=60,
    )
    assert found.history.scores.min() == -1000
    assert problem.estimate(found.recommended.structure) > found.best.score - 0.02


def test_ordinary_scores_are_no_outliers() -> None:
    scores = np.array([0.1, 0.5, 0.7, 0.8, 0.9])
    assert without_outliers(scores) is not scores
    assert without_outliers(scores).tolist() == scores.tolist()
    assert without_outliers(np.append(scores, -4.0)).tolist() == pytest.approx([*scores, 0.6 - 10 * 0.3])
    assert without_outliers(np.array([0.5, 0.5, 0.5])).tolist() == [0.5, 0.5, 0.5]


@pytest.mark.slow
def test_it_finds_every_structure_of_a_space_before_it_ends() -> None:
    def cost(rows: np.ndarray) -> np.ndarray:
        return (rows[:, :-1] * rows[:, 1:]).sum(axis=1) + 3 * rows[:, 0] + 10 * rows[:, -1]

    widths = np.array([[16, 16, 16]])
    space = SearchSpace.from_widths(widths[0].tolist(), pruning_step=1)
    budget = Budget(Limit(Cost("m", "", float(cost(widths)[0]), cost), pruning_rate=0.5))
    search = searcher("default", space, budget)
    found = run_search(search, lambda structure: -sum((c - 5.0) ** 2 for c in structure), evaluations=150)
    assert found.stopped == "exhausted"
    assert len(found.history) == len(Rescaling(space, budget).results("two-sided")) == 105
