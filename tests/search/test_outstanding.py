"""Proposals ahead of scores: the search depends on how far a method looks ahead, not on when scores arrive."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aacp.bench.problems import Problem
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidStructure
from aacp.search.gaussian import GaussianProcess
from aacp.search.guided import GuidedEvolution, GuidedEvolutionSettings
from aacp.search.history import History
from aacp.search.loop import run_search
from aacp.search.methods import searcher
from aacp.search.searcher import Searcher
from aacp.workers.pool import WorkerPool
from search.ahead import ROWS, WINDOW, Ahead
from workers.simulated import SimulatedEngine

LENGTH = 40


def ahead(problem: Problem) -> Ahead:
    return Ahead(problem.space, problem.budget, seed=5)


def guided(problem: Problem, batch: int = 8) -> GuidedEvolution:
    return GuidedEvolution(problem.space, problem.budget, 5, GuidedEvolutionSettings(batch=batch))


MAKERS = [ahead, pytest.param(guided, marks=pytest.mark.slow)]
every_method = pytest.mark.parametrize("make", MAKERS)


def one_by_one(search: Searcher[Any], problem: Problem, length: int = LENGTH) -> History:
    """The history if each structure is evaluated as soon as it is the earliest without a score."""
    while len(search.history) < length:
        first = search.ask()[0]
        search.tell([(first, problem.estimate(first))])
    return search.history


def first_of(history: History, length: int) -> list[Any]:
    return [candidate.to_json() for candidate in history][:length]


def test_a_proposal_knows_exactly_the_scores_before_the_window(problem: Problem) -> None:
    search = ahead(problem)
    one_by_one(search, problem)
    # Proposal p holds the structures from 2 p on. The window of six leaves four others without a score.
    assert search.seen_at == [max(0, ROWS * p - (WINDOW - ROWS)) for p in range(len(search.seen_at))]
    assert len(search.ask()) in (WINDOW - 1, WINDOW)


@pytest.fixture(scope="module")
def plain(problem: Problem) -> Callable[[Any], list[Any]]:
    """The history of each method, evaluated in order, computed once."""
    return cache(lambda make: first_of(one_by_one(make(problem), problem), LENGTH))


@pytest.fixture(scope="module")
def in_process(problem: Problem) -> Callable[[Any], History]:
    """The history of each method without workers, computed once."""
    return cache(lambda make: run_search(make(problem), problem.estimate, evaluations=LENGTH).history)


@every_method
def test_neither_order_nor_grouping_of_scores_matters(
    make: Any, problem: Problem, plain: Callable[[Any], list[Any]]
) -> None:
    expected = plain(make)
    generator = np.random.default_rng(0)
    shuffled, at_once = make(problem), make(problem)
    while len(shuffled.history) < LENGTH:
        waiting = shuffled.ask()
        chosen = waiting[int(generator.integers(len(waiting)))]
        shuffled.tell([(chosen, problem.estimate(chosen))])
    while len(at_once.history) < LENGTH:
        at_once.tell([(structure, problem.estimate(structure)) for structure in reversed(at_once.ask())])
    assert first_of(shuffled.history, LENGTH) == expected
    assert first_of(at_once.history, LENGTH) == expected


@every_method
@pytest.mark.parametrize("workers", [1, 3, 50])
def test_neither_number_nor_speed_of_workers_matters(
    make: Any,
    workers: int,
    problem: Problem,
    plain: Callable[[Any], list[Any]],
    in_process: Callable[[Any], History],
) -> None:
    expected = plain(make)
    times = np.random.default_rng(workers).uniform(0.1, 3.0, 1000)
    pool = WorkerPool(SimulatedEngine(workers, problem.estimate, lambda ticket: float(times[ticket])))
    found = run_search(make(problem), problem.estimate, evaluations=LENGTH, queue=pool)
    assert first_of(found.history, LENGTH) == expected
    assert len(found.history) == LENGTH
    assert in_process(make) == found.history


def test_workers_do_not_wait_for_the_slowest(problem: Problem) -> None:
    """Of every eight estimates one takes two seconds, the others one: 11.25 s of each worker, 20 s in batches of 8."""
    engine = SimulatedEngine(8, problem.estimate, lambda ticket: 2.0 if ticket % 8 == 0 else 1.0)
    search = searcher("random", problem.space, problem.budget, proposals=8)
    run_search(search, problem.estimate, evaluations=80, queue=WorkerPool(engine))
    assert len(engine.submitted) == 80
    assert 11.25 <= engine.now < 13.5


@every_method
def test_nothing_is_evaluated_beyond_a_bound_and_the_rest_is_evaluated_later(
    make: Any, problem: Problem, plain: Callable[[Any], list[Any]]
) -> None:
    search, seen = make(problem), []

    def estimate(structure: Any) -> float:
        seen.append(structure)
        return problem.estimate(structure)

    for mark in (7, 23, LENGTH):
        run_search(search, estimate, evaluations=mark)
        assert len(search.history) == len(seen) == mark
    assert first_of(search.history, LENGTH) == plain(make)


def test_early_scores_beyond_a_bound_do_not_end_a_search(problem: Problem) -> None:
    """As after a loss of the first line of a log, when the search is resumed with fewer evaluations."""
    for evaluations in (1, 2):
        search = ahead(problem)
        first, *others = search.ask()
        search.tell([(each, problem.estimate(each)) for each in others])
        result = run_search(search, problem.estimate, evaluations=evaluations)
        assert result.stopped == "evaluations"
        assert result.history[0].structure == first


def test_generations_end_a_search_that_looks_ahead(problem: Problem) -> None:
    search = ahead(problem)
    for mark in (3, 9):
        found = run_search(search, problem.estimate, generations=mark)
        assert found.stopped == "generations"
        assert [candidate.generation for candidate in found.history] == [number // ROWS for number in range(2 * mark)]


@every_method
def test_resumed_at_any_moment_the_search_is_the_same(make: Any, problem: Problem) -> None:
    whole = make(problem)
    generator = np.random.default_rng(1)
    while len(whole.history) < 30:
        state = json.loads(json.dumps(whole.state()))
        waiting = whole.ask()
        resumed = make(problem)
        resumed.resume(state)
        assert json.loads(json.dumps(resumed.state())) == state
        assert resumed.ask() == waiting
        chosen = waiting[int(generator.integers(len(waiting)))]
        for search in (whole, resumed):
            search.tell([(chosen, problem.estimate(chosen))])
        assert resumed.ask() == whole.ask()
        assert json.dumps(resumed.state()) == json.dumps(whole.state())


@pytest.fixture(scope="module")
def lines_of_thirty(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a search of 30 evaluations that is not interrupted writes."""
    folder = tmp_path_factory.mktemp("whole")
    run_search(ahead(problem), problem.estimate, evaluations=30, folder=folder)
    return (folder / "history.jsonl").read_bytes()


@pytest.mark.parametrize("lost", [set(), {4}, {0, 9, 13}, {17, 18, 19}])
@pytest.mark.parametrize("without_checkpoint", [False, True])
def test_a_killed_search_resumes_exactly_and_evaluates_nothing_twice(
    lost: set[int], without_checkpoint: bool, problem: Problem, lines_of_thirty: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    scored: list[Any] = []

    def dies(structure: Any) -> float:
        if len(scored) == 20:
            raise RuntimeError("killed")
        scored.append(structure)
        return problem.estimate(structure)

    with pytest.raises(RuntimeError, match="killed"):
        run_search(ahead(problem), dies, evaluations=30, folder=folder)
    lines = (folder / "history.jsonl").read_bytes().splitlines(True)
    assert len(lines) == 20
    (folder / "history.jsonl").write_bytes(b"".join(line for at, line in enumerate(lines) if at not in lost))
    if without_checkpoint:
        (folder / "search.json").unlink()
    again: list[Any] = []
    run_search(ahead(problem), lambda each: again.append(each) or problem.estimate(each), evaluations=30, folder=folder)
    assert len(again) == 10 + len(lost)
    assert (folder / "history.jsonl").read_bytes() == lines_of_thirty


@pytest.fixture
def few_structures() -> Ahead:
    """A search in which only six structures cannot grow: of three groups with at most 3 channels, those with 7."""
    space = SearchSpace.from_widths([3, 3, 3], pruning_step=1)
    return Ahead(space, Budget(Limit(Cost("sum", "", 9.0, lambda rows: rows.sum(axis=1)), at_most=7)), seed=0)


def test_a_small_space_is_searched_to_its_end(few_structures: Ahead) -> None:
    found = run_search(few_structures, lambda structure: float(structure.counts[0]), evaluations=100)
    assert found.stopped == "exhausted"
    assert sorted(candidate.structure.counts for candidate in found.history) == [
        (1, 3, 3), (2, 2, 3), (2, 3, 2), (3, 1, 3), (3, 2, 2), (3, 3, 1),
    ]  # fmt: skip


def test_looking_again_for_what_is_not_there_changes_nothing(few_structures: Ahead) -> None:
    while waiting := few_structures.ask():
        state = json.dumps(few_structures.state())
        assert few_structures.ask() == waiting
        assert json.dumps(few_structures.state()) == state
        resumed = Ahead.from_state(few_structures.space, few_structures.budget, json.loads(state))
        assert resumed.ask() == waiting
        assert json.dumps(resumed.state()) == state
        few_structures.tell([(waiting[-1], 0.5)])


def test_a_score_is_reported_once(problem: Problem) -> None:
    search = ahead(problem)
    first, second, *_ = search.ask()
    search.tell([(second, 0.5)])  # it waits for the first
    assert not len(search.history)
    assert [candidate.structure for candidate in search.early] == [second]
    with pytest.raises(InvalidStructure, match="not awaiting a score"):
        search.tell([(second, 0.5)])
    assert first in search.ask()
    assert second not in search.ask()
    search.tell([(first, 0.25)])
    assert [candidate.score for candidate in search.history] == [0.25, 0.5]


def test_the_default_method_counts_what_outstanding_structures_will_tell(problem: Problem, monkeypatch) -> None:
    awaited_rows = []
    predict = GaussianProcess.predict

    def noted(self: GaussianProcess, widths: Any, awaited: Any = None) -> Any:
        awaited_rows.append(awaited.tolist())
        return predict(self, widths, awaited)

    monkeypatch.setattr(GaussianProcess, "predict", noted)
    search = guided(problem)
    search.tell([(structure, problem.estimate(structure)) for structure in search.ask()])
    widths = [(np.array(structure) / np.array(problem.space.full)).tolist() for structure in search.ask()]
    assert len(widths) == 8
    assert awaited_rows == [widths[:count] for count in range(8) for _ in range(2)]  # two rounds for each proposal
