"""The properties that every search method has."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aacp.bench.networks import resnet
from aacp.bench.problems import Problem, pruning_problem
from aacp.bench.rivals import COMPARED, compared_method
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import DamagedRun, InfeasibleBudget, InvalidOption, InvalidScore, InvalidStructure, RunMismatch
from aacp.search.guided import GuidedEvolution, GuidedEvolutionSettings
from aacp.search.history import History
from aacp.search.loop import run_search
from aacp.search.methods import searcher
from aacp.search.searcher import Searcher
from sampling import sampled

STEPS = 14  # generations that are enough to see every part of every method
every_method = pytest.mark.parametrize("method", COMPARED)
some_methods = pytest.mark.parametrize("method", sampled(COMPARED, 3))


def search_of(method: str, problem: Problem, seed: int) -> Searcher:
    """A new search of the problem by a method of the library or a rival."""
    return searcher(compared_method(method), problem.space, problem.budget, seed)


def run_generations(search, problem: Problem, generations: int = STEPS):
    """Run a search for some generations, with structures evaluated in order, and return it."""
    for _ in range(generations):
        search.tell([(structure, problem.estimate(structure)) for structure in search.ask()])
    return search


@pytest.fixture(scope="module")
def plain(problem: Problem) -> Callable[[str], History]:
    """The history of each method with seed 3, evaluated in order, computed once."""
    return cache(lambda method: run_generations(search_of(method, problem, 3), problem).history)


@every_method
def test_every_proposed_structure_is_legal_within_every_limit_and_new(method: str, problem: Problem) -> None:
    search, seen = search_of(method, problem, 1), set()
    for _ in range(STEPS):
        for structure in (batch := search.ask()):
            assert structure in problem.space
            assert problem.budget.feasible(structure)
            assert structure not in seen
            seen.add(structure)
        search.tell([(structure, problem.estimate(structure)) for structure in batch])
    assert len(seen) == len(search.history)


@pytest.mark.slow
@settings(max_examples=8)
@given(
    st.sampled_from(sorted(COMPARED)),
    st.lists(st.integers(1, 40), min_size=4, max_size=8),
    st.floats(0, 0.8),
    st.integers(0, 99),
)
def test_any_space_and_budget_are_obeyed_or_rejected(method: str, widths: list[int], rate: float, seed: int) -> None:
    space = SearchSpace.from_widths(widths, pruning_step=1 / 4)
    generator = np.random.default_rng(seed)
    prices = generator.integers(1, 9, size=len(widths))
    full = float(np.prod(widths) + prices @ widths)
    budget = Budget(Limit(Cost("odd", "", full, lambda rows: rows.prod(axis=1) + rows @ prices), pruning_rate=rate))
    if not budget.feasible(space.smallest):
        with pytest.raises(InfeasibleBudget):
            searcher(compared_method(method), space, budget)
        return
    search = searcher(compared_method(method), space, budget, seed)
    while len(search.history) < 30 and (batch := search.ask()):
        assert all(structure in space and budget.feasible(structure) for structure in batch)
        search.tell([(structure, float(generator.random())) for structure in batch])


@pytest.mark.slow
@every_method
def test_the_same_seed_gives_the_same_history_and_another_seed_another(
    method: str, problem: Problem, plain: Callable[[str], History]
) -> None:
    again, other = (run_generations(search_of(method, problem, seed), problem) for seed in (3, 6))
    assert plain(method) == again.history
    if method not in ("uniform", "sensitivity"):  # which hardly draw anything
        assert plain(method) != other.history


@pytest.mark.slow
@every_method
def test_resumed_is_uninterrupted_at_every_generation(method: str, problem: Problem) -> None:
    """Resumed at any moment, the next moment's state is the same to the last bit: so all that follow are."""

    def moments(search):
        """The states of one generation: without scores, with some scores, with all scores."""
        batch = search.ask()
        yield json.dumps(search.state())
        search.tell([(structure, problem.estimate(structure)) for structure in batch[:3]])
        yield json.dumps(search.state())
        search.tell([(structure, problem.estimate(structure)) for structure in batch[3:]])
        yield json.dumps(search.state())

    whole = search_of(method, problem, 2)
    before = json.dumps(whole.state())
    for _ in range(STEPS):
        for after in moments(whole):
            resumed = type(whole).from_state(problem.space, problem.budget, json.loads(before))
            assert json.dumps(resumed.state()) == before
            assert after == before or after in list(moments(resumed))
            before = after


@pytest.mark.slow
@some_methods
def test_neither_order_nor_number_of_workers_matters(
    method: str, problem: Problem, plain: Callable[[str], History]
) -> None:
    expected = plain(method)
    shuffled, generator = (
        search_of(method, problem, 3),
        np.random.default_rng(0),
    )
    for _ in range(STEPS):
        batch = shuffled.ask()
        for position in generator.permutation(len(batch)):
            shuffled.tell([(batch[position], problem.estimate(batch[position]))])
    assert shuffled.history == expected
    assert shuffled.best == expected.best
    with ThreadPoolExecutor(4) as pool:
        search = search_of(method, problem, 3)
        parallel = run_search(search, problem.estimate, evaluations=len(expected), map=pool.map)
    assert parallel.history == expected


@pytest.mark.slow
@some_methods
def test_best_has_the_highest_score_of_all_candidates(method: str, problem: Problem) -> None:
    search, scores = search_of(method, problem, 4), []
    for _ in range(STEPS):
        results = [(structure, problem.estimate(structure)) for structure in search.ask()]
        search.tell(results)
        scores += [score for _, score in results]
        assert search.best is not None
        assert search.best.score == max(scores)


@pytest.mark.slow
@some_methods
def test_looking_does_not_disturb(method: str, problem: Problem, plain: Callable[[str], History]) -> None:
    watched = search_of(method, problem, 3)
    for _ in range(STEPS):
        watched.tell([(structure, problem.estimate(structure)) for structure in watched.ask()])
        assert watched.recommended in list(watched.history)
        watched.state()
    assert watched.history == plain(method)


@pytest.mark.slow
@every_method
def test_a_space_with_nothing_left_to_evaluate_ends_the_search(method: str) -> None:
    space = SearchSpace.from_widths([3, 3], pruning_step=1)
    search = searcher(compared_method(method), space, Budget(), seed=0)
    result = run_search(search, lambda structure: float(sum(structure)), evaluations=100)
    assert result.stopped == "exhausted"
    assert len(result.history) <= 9


@pytest.mark.parametrize("method", ["default", "paper", "released", "bees", "ide+", "random", "tournament"])
def test_a_search_of_a_small_space_ends_after_its_last_structure(method: str) -> None:
    within = {(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)}
    cannot_grow = {(1, 3), (2, 2), (3, 1)}
    space = SearchSpace.from_widths([3, 3], pruning_step=1)
    budget = Budget(Limit(Cost("sum", "", 6.0, lambda rows: rows.sum(axis=1)), at_most=4))
    search, generations = searcher(compared_method(method), space, budget), []

    def estimate(structure: Structure) -> float:
        generations.append(search.generation)
        return float(structure.counts[0])

    found = run_search(search, estimate, evaluations=100)
    assert found.stopped == "exhausted"
    counts = {candidate.structure.counts for candidate in found.history}
    assert counts == (within if method in ("paper", "released", "bees") else cannot_grow)
    assert search.generation <= generations[-1] + 1


def test_a_space_that_is_too_large_to_list_is_searched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aacp.search.searcher.MAX_LISTED", 8)
    search = searcher("random", SearchSpace.from_widths([3, 3], pruning_step=1), Budget())
    assert run_search(search, lambda structure: 1.0, evaluations=2).stopped == "exhausted"
    assert search.generation > 20


def test_asking_again_returns_what_is_still_missing(problem: Problem) -> None:
    search = searcher("paper", problem.space, problem.budget)
    batch = search.ask()
    search.tell([(batch[1], 0.5)])
    assert search.ask() == [batch[0], *batch[2:]]


def test_scores_of_strangers_and_scores_that_are_none_are_rejected(problem: Problem) -> None:
    search = searcher("paper", problem.space, problem.budget)
    batch = search.ask()
    with pytest.raises(InvalidStructure, match="not awaiting a score"):
        search.tell([(problem.space.smallest, 0.5)])
    with pytest.raises(InvalidScore, match="finite number"):
        search.tell([(batch[0], float("nan"))])
    search.tell([(batch[0], 0.5)])
    with pytest.raises(InvalidStructure, match="not awaiting a score"):
        search.tell([(batch[0], 0.5)])


def test_a_state_whose_limits_are_texts_as_older_versions_wrote_them_is_resumed(problem: Problem) -> None:
    search = run_generations(searcher("paper", problem.space, problem.budget), problem, 2)
    limits = problem.budget.limits
    older = {**search.state(), "limits": [[str(limit), limit.bound] for limit in limits]}
    again = searcher("paper", problem.space, problem.budget)
    again.resume(older)
    assert again.state() == search.state()
    older["limits"] = [[f"other{limit}", limit.bound] for limit in limits]
    with pytest.raises(RunMismatch, match="limits"):
        searcher("paper", problem.space, problem.budget).resume(older)
    older["limits"] = [7]
    with pytest.raises(DamagedRun, match="state of the search is damaged"):
        searcher("paper", problem.space, problem.budget).resume(older)


def test_a_state_of_another_search_is_rejected(problem: Problem) -> None:
    state = run_generations(searcher("paper", problem.space, problem.budget), problem, 2).state()
    with pytest.raises(RunMismatch, match="limits"):
        searcher("paper", problem.space, Budget(problem.budget.limits[0])).resume(state)
    with pytest.raises(RunMismatch, match="settings"):
        searcher("ide+", problem.space, problem.budget).resume(state)
    with pytest.raises(RunMismatch, match="method"):
        GuidedEvolution.from_state(problem.space, problem.budget, state)
    finer = SearchSpace.from_widths(resnet(20).widths, 1 / 16)
    with pytest.raises(RunMismatch, match="choices"):
        searcher("paper", finer, problem.budget).resume(state)


def test_an_infeasible_budget_is_rejected_before_anything_is_proposed(problem: Problem) -> None:
    with pytest.raises(InfeasibleBudget, match="macs"):
        searcher("default", problem.space, Budget(Limit(resnet(20).macs(), pruning_rate=0.9999)))


def test_an_unknown_method_is_rejected(problem: Problem) -> None:
    with pytest.raises(InvalidOption, match="default, paper"):
        searcher("guess", problem.space, problem.budget)


@pytest.fixture(scope="module")
def old(problem: Problem) -> Searcher:
    return run_generations(searcher("default", problem.space, problem.budget, seed=1), problem, 20)


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in COMPARED if name not in ("uniform", "sensitivity")])
def test_a_new_search_can_start_from_the_best_of_an_old_one(method: str, problem: Problem, old: Searcher) -> None:
    tighter = Budget(Limit(resnet(20).macs(), pruning_rate=0.5))
    found = old.history.rebudget(tighter)
    assert found is not None
    search = searcher(compared_method(method), problem.space, tighter, seed=1, start=[found.structure])
    first = search.ask()[0]
    assert all(new >= kept for new, kept in zip(first, found.structure, strict=True))  # grown back at most
    assert isinstance(first, Structure)


def test_the_members_of_a_step_are_apart() -> None:
    problem = pruning_problem("additive", "resnet20", seed=1)
    search = GuidedEvolution(problem.space, problem.budget, settings=GuidedEvolutionSettings(batch=40))
    run_generations(search, problem, 1)
    waiting = search.ask()
    assert [search.generation_of(structure) for structure in waiting] == [1 + place // 5 for place in range(40)]
    for start in range(0, 40, 5):
        step = np.array([list(structure) for structure in waiting[start : start + 5]])
        differences = (step[:, None] != step[None]).sum(axis=2)
        assert differences[~np.eye(5, dtype=bool)].min() >= 3
