"""What a search takes over from candidates of searches under other budgets."""

import numpy as np
import pytest

from aacp.bench.networks import resnet
from aacp.bench.problems import Problem
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget, Limit
from aacp.search.guided import GuidedEvolution
from aacp.search.history import Candidate, History
from aacp.search.loop import run_search
from aacp.search.methods import searcher
from aacp.search.rescaling import Rescaling
from aacp.search.transfer import CLOSEST, WARM_STARTS, closest, in_proportion, warm_starts

NETWORK = resnet(20)
SPACE = SearchSpace.from_widths(NETWORK.widths)


def at_rate(rate: float) -> Budget:
    return Budget(Limit(NETWORK.macs(), pruning_rate=rate))


def search_at(problem: Problem, rate: float, seed: int = 0, **options: object) -> GuidedEvolution:
    return searcher("default", problem.space, at_rate(rate), seed, **options)


@pytest.fixture(scope="module")
def known(problem: Problem) -> History:
    """Sixty evaluations at -48 % MACs."""
    return run_search(search_at(problem, 0.48), problem.estimate, evaluations=60).history


def test_the_best_of_the_closest_are_brought_to_the_budget() -> None:
    generator = np.random.default_rng(0)
    rows = SPACE.counts(generator.integers(1, SPACE.levels, size=(120, len(SPACE))))
    scores = generator.random(120)
    every = History(Candidate(i, 0, Structure(row), float(scores[i])) for i, row in enumerate(rows.tolist()))
    budget = at_rate(0.6)
    apart = np.abs(NETWORK.macs()(rows) / budget.limits[0].bound - 1)
    near = np.argsort(apart, kind="stable")[:CLOSEST]
    expected = near[np.argsort(-scores[near], kind="stable")][:WARM_STARTS]
    rescaling = Rescaling(SPACE, budget)
    found = warm_starts(closest(every, budget), rescaling)
    np.testing.assert_array_equal(found, [in_proportion(every[int(place)].structure, rescaling) for place in expected])


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.8])
def test_in_proportion_no_common_factor_gives_more_within_the_budget(rate: float) -> None:
    space, budget = SearchSpace.from_widths(NETWORK.widths, pruning_step=1), at_rate(rate)
    full = np.array(space.full)
    factors = np.arange(1, 40_000) / 10_000
    generator = np.random.default_rng(1)
    for _ in range(20):
        counts = generator.integers(full // 2, full)
        found = space.counts(in_proportion(Structure(counts.tolist()), Rescaling(space, budget)))
        assert budget.feasible(found)
        scaled = np.clip(np.floor(factors[:, None] * counts + 0.5), 1, full).astype(np.int64)
        widest = scaled[budget.feasible(scaled)].sum(axis=1).max()
        assert found.sum() == widest


def test_a_structure_that_fits_grows_in_proportion() -> None:
    half = Structure([width // 2 for width in SPACE.full])
    grown = SPACE.counts(in_proportion(half, Rescaling(SPACE, at_rate(0.2))))
    ratios = grown / np.array(half.counts)
    assert ratios.min() > 1.5
    assert ratios.max() - ratios.min() < 0.15


def test_first_structures_that_the_known_scores_speak_against_are_not_evaluated(
    problem: Problem, known: History
) -> None:
    fresh, taught = search_at(problem, 0.5).ask(), search_at(problem, 0.5, known=known).ask()
    others = [structure for structure in fresh if structure not in taught]
    assert len(fresh) == 9
    assert len(taught) < WARM_STARTS + 5
    best = max(problem.estimate(structure) for structure in taught)
    assert len(others) > 3
    assert all(problem.estimate(structure) < best for structure in others)


def test_structures_that_are_given_are_evaluated_in_any_case(problem: Problem, known: History) -> None:
    *_, bad = sorted(search_at(problem, 0.5).ask(), key=lambda structure: -problem.estimate(structure))
    assert bad not in search_at(problem, 0.5, known=known).ask()
    assert bad in search_at(problem, 0.5, known=known, start=[bad]).ask()


def test_without_known_candidates_nothing_is_left_out(problem: Problem) -> None:
    fresh = search_at(problem, 0.5).ask()
    assert search_at(problem, 0.5, known=History()).ask() == fresh
