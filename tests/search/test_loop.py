"""The loop: bounds, folders, interrupts, progress."""

import json
from pathlib import Path

import pytest

from aacp.bench.problems import Problem
from aacp.bench.rivals import COMPARED, compared_method
from aacp.errors import InvalidOption, RunLocked, RunMismatch
from aacp.runs.folder import RunFolder
from aacp.search.baselines import GivenStructures
from aacp.search.history import Candidate, History
from aacp.search.loop import Bounds, run_search, search_steps
from aacp.search.methods import searcher
from aacp.search.queue import MapQueue
from aacp.search.searcher import Searcher
from aacp.user.progress import show_progress
from sampling import sampled


def fresh(problem: Problem, method: str = "ide+") -> Searcher:
    return searcher(compared_method(method), problem.space, problem.budget, seed=7)


def logged(folder: Path) -> History:
    return History(map(Candidate.from_json, RunFolder(folder).read_log("history.jsonl")))


class Dies:
    """An estimate that raises at its n-th call, counted over all its life."""

    def __init__(self, problem: Problem, at: int, error: type[BaseException]) -> None:
        self.problem, self.at, self.error, self.calls = problem, at, error, 0

    def __call__(self, structure) -> float:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return self.problem.estimate(structure)


def test_evaluations_are_counted_exactly(problem: Problem) -> None:
    result = run_search(fresh(problem), problem.estimate, evaluations=37)
    assert len(result.history) == 37
    assert result.stopped == "evaluations"
    assert result.best == result.history.best


def test_generations_are_counted_from_the_first_population(problem: Problem) -> None:
    result = run_search(fresh(problem, "tournament"), problem.estimate, generations=3)
    assert result.stopped == "generations"
    assert {candidate.generation for candidate in result.history} == {0, 1, 2}


def test_seconds_end_a_search(problem: Problem) -> None:
    result = run_search(fresh(problem), problem.estimate, seconds=0.05)
    assert result.stopped == "seconds"


def test_a_search_without_a_bound_is_rejected(problem: Problem) -> None:
    with pytest.raises(InvalidOption, match="has no end"):
        run_search(fresh(problem), problem.estimate)
    with pytest.raises(InvalidOption, match="evaluations is 0"):
        run_search(fresh(problem), problem.estimate, evaluations=0)


def test_cut_short_and_continued_is_the_same_search(problem: Problem) -> None:
    whole = run_search(fresh(problem), problem.estimate, evaluations=60)
    search = fresh(problem)
    for mark in (3, 10, 27, 60):
        run_search(search, problem.estimate, evaluations=mark)
    assert search.history == whole.history


@pytest.mark.slow
@pytest.mark.parametrize("method", sampled(COMPARED, 3))
@pytest.mark.parametrize(("error", "places"), [(KeyboardInterrupt, (2, 14)), (RuntimeError, (11, 25))])
def test_stopped_anywhere_a_folder_resumes_exactly_and_evaluates_nothing_twice(
    method: str, error: type[BaseException], places: tuple[int, ...], problem: Problem, tmp_path: Path
) -> None:
    whole = run_search(fresh(problem, method), problem.estimate, evaluations=30)
    for at in places:
        folder = tmp_path / str(at)
        estimate = Dies(problem, at, error)
        if at <= len(whole.history):
            if error is KeyboardInterrupt:
                stopped = run_search(fresh(problem, method), estimate, evaluations=30, folder=folder)
                assert stopped.stopped == "interrupted"
            else:
                with pytest.raises(RuntimeError):
                    run_search(fresh(problem, method), estimate, evaluations=30, folder=folder)
            assert len(logged(folder)) == at - 1
        resumed = run_search(fresh(problem, method), estimate, evaluations=30, folder=folder)
        assert resumed.history == whole.history == logged(folder)
        assert estimate.calls == len(whole.history) + (at <= len(whole.history))


def test_an_interrupt_before_the_first_score_is_an_interrupt(problem: Problem) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_search(fresh(problem), Dies(problem, 1, KeyboardInterrupt), evaluations=30)


def test_a_search_that_evaluates_nothing_says_why(problem: Problem) -> None:
    with pytest.raises(InvalidOption, match=r"ended before its first evaluation \(exhausted\)"):
        run_search(GivenStructures(problem.space, problem.budget), problem.estimate, evaluations=30)


def test_a_torn_log_line_costs_one_evaluation(problem: Problem, tmp_path: Path) -> None:
    run_search(fresh(problem), Dies(problem, 15, KeyboardInterrupt), evaluations=30, folder=tmp_path)
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    resumed = run_search(fresh(problem), problem.estimate, evaluations=30, folder=tmp_path)
    assert resumed.history == run_search(fresh(problem), problem.estimate, evaluations=30).history == logged(tmp_path)


def test_a_finished_folder_is_not_evaluated_again(problem: Problem, tmp_path: Path) -> None:
    first = run_search(fresh(problem), problem.estimate, evaluations=30, folder=tmp_path)
    estimate = Dies(problem, 1, AssertionError)
    again = run_search(fresh(problem), estimate, evaluations=30, folder=tmp_path)
    assert again.history == first.history
    assert estimate.calls == 0


def test_a_folder_of_another_search_is_rejected(problem: Problem, tmp_path: Path) -> None:
    run_search(fresh(problem), problem.estimate, evaluations=12, folder=tmp_path)
    with pytest.raises(RunMismatch, match="settings"):
        run_search(fresh(problem, "paper"), problem.estimate, evaluations=12, folder=tmp_path)


def test_a_folder_in_use_is_rejected(problem: Problem, tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock(), pytest.raises(RunLocked):
        run_search(fresh(problem), problem.estimate, evaluations=12, folder=tmp_path)


def test_the_checkpoint_is_plain_json_with_the_generator_in_it(problem: Problem, tmp_path: Path) -> None:
    run_search(fresh(problem), problem.estimate, evaluations=12, folder=tmp_path)
    state = json.loads((tmp_path / "search.json").read_text())
    assert state["generator"]["bit_generator"] == "PCG64"
    assert state["method"] == "ImprovedDifferentialEvolution"


def test_progress_says_how_far_how_good_how_tight_and_how_long(problem: Problem) -> None:
    seen = list(search_steps(fresh(problem), MapQueue(problem.estimate), Bounds(evaluations=40)))
    assert [progress.evaluations for progress in seen] == list(range(1, 41))
    last = seen[-1]
    assert last.evaluations == 40
    assert last.seconds_left == 0
    assert [progress.evaluations for progress in seen if progress.seconds_left is None] == [1, 2]
    assert all(progress.seconds_left > 0 for progress in seen[2:-1])
    shares = [limit.cost(list(last.best.structure)) / limit.cost.full for limit in problem.budget.limits]
    costs = f"macs -{100 * (1 - shares[0]):.1f} %, params -{100 * (1 - shares[1]):.1f} %"
    for part in ("40/40 evaluations", f"best {last.best.score:.4f} (number {last.best.number}, {costs})", "left"):
        assert part in str(last)
    assert " met " not in str(last)  # a latency is only predicted here


def test_one_evaluation_says_nothing_of_the_pace(problem: Problem) -> None:
    (only,) = search_steps(
        searcher("random", problem.space, problem.budget, 0), MapQueue(problem.estimate), Bounds(evaluations=1)
    )
    assert str(only).startswith("1/1 evaluations, ")
    assert "left" not in str(only)


def test_nothing_is_printed_unless_progress_is_shown(problem: Problem, capsys: pytest.CaptureFixture[str]) -> None:
    run_search(fresh(problem), problem.estimate, evaluations=12)
    assert capsys.readouterr() == ("", "")
    with show_progress():
        run_search(fresh(problem), problem.estimate, evaluations=12)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith("1/12 evaluations, ")
    assert lines[-1].startswith("12/12 evaluations, ")


def test_a_search_without_a_number_of_evaluations_counts_them_alone(problem: Problem, capsys) -> None:
    with show_progress():
        run_search(fresh(problem, "tournament"), problem.estimate, generations=1)
    assert capsys.readouterr().err.startswith("1 evaluation, generation 0")


def test_a_terminal_sees_a_bar_of_all_evaluations_before_the_first(problem: Problem, capsys, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "240")
    shown: list[str] = []

    def estimate(structure) -> float:
        shown.append(capsys.readouterr().err)
        return problem.estimate(structure)

    with show_progress():
        found = run_search(fresh(problem), estimate, evaluations=12)
    assert " 0/12" in shown[0]
    last = capsys.readouterr().err
    assert "12/12" in last
    assert f"best {found.best.score:.4f}" in last


@pytest.mark.slow
def test_it_speaks_of_what_is_better_of_the_end_and_every_few_seconds(problem: Problem, capsys, monkeypatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr("aacp.search.loop.time.monotonic", lambda: float(next(ticks)))
    method = searcher("default", problem.space, problem.budget, 0)
    with show_progress():
        found = run_search(method, problem.estimate, evaluations=30)
    lines = capsys.readouterr().err.splitlines()
    scores = [candidate.score for candidate in found.history]
    records = sum(score > max(scores[:place], default=-1) for place, score in enumerate(scores))
    assert records < len(lines) < 30
    assert lines[-1].startswith("30/30 evaluations, ")
