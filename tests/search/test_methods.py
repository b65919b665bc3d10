"""Search methods by name, and a user-defined method, which works wherever a built-in one does."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aacp
from aacp.bench.problems import Problem
from aacp.errors import InvalidOption, InvalidStructure, RunMismatch
from aacp.search.loop import SearchResult, run_search
from aacp.search.methods import METHODS, default_evaluations_text, named_method, searcher


def documented_example() -> type[aacp.Searcher]:
    """The class that the docstring of Searcher defines, exactly as it is printed there."""
    code = re.search(r"```python\n(.*?)```", aacp.Searcher.__doc__ or "", re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(textwrap.dedent("    " + code[1].lstrip()), names)
    return names["HillClimber"]


HillClimber = documented_example()


def new_search(problem: Problem) -> aacp.Searcher:
    return searcher(HillClimber, problem.space, problem.budget, seed=5)


def test_a_users_searcher_improves_within_the_budget(problem: Problem) -> None:
    found = run_search(new_search(problem), problem.estimate, evaluations=60)
    scores = [candidate.score for candidate in found.history]
    assert len(scores) == 60
    assert found.best.score == max(scores) > scores[0] + 0.02
    assert all(problem.budget.feasible(candidate.structure) for candidate in found.history)


def test_a_users_searcher_begins_with_the_structure_it_is_given(problem: Problem) -> None:
    wide = run_search(new_search(problem), problem.estimate, evaluations=20).best.structure
    search = searcher(HillClimber, problem.space, problem.budget, seed=1, start=[wide])
    assert search.ask() == [wide]


@pytest.fixture(scope="module")
def whole(problem: Problem) -> SearchResult:
    return run_search(new_search(problem), problem.estimate, evaluations=40)


@pytest.mark.parametrize("stop", [1, 2, 17, 31])
def test_a_users_searcher_resumes_from_its_folder(
    whole: SearchResult, problem: Problem, tmp_path: Path, stop: int
) -> None:
    run_search(new_search(problem), problem.estimate, evaluations=stop, folder=tmp_path)
    resumed = run_search(new_search(problem), problem.estimate, evaluations=40, folder=tmp_path)
    assert resumed.history == whole.history


def test_a_users_state_is_json_and_restores_the_same_search(problem: Problem) -> None:
    search = new_search(problem)
    run_search(search, problem.estimate, evaluations=12)
    state = json.dumps(search.state())
    again = HillClimber.from_state(problem.space, problem.budget, json.loads(state))
    assert json.dumps(again.state()) == state
    assert again.ask() == search.ask()


def test_a_folder_of_another_method_is_rejected_by_a_users_searcher(problem: Problem, tmp_path: Path) -> None:
    run_search(searcher("random", problem.space, problem.budget), problem.estimate, evaluations=3, folder=tmp_path)
    with pytest.raises(RunMismatch, match="method 'RandomSearch', but this one has 'HillClimber'"):
        run_search(
            searcher(HillClimber, problem.space, problem.budget), problem.estimate, evaluations=3, folder=tmp_path
        )


class Careless(HillClimber):  # type: ignore[misc, valid-type]
    """A method whose rows are whatever the test says."""

    rows: Any = None

    def propose(self) -> Any:
        return self.rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda space: (space.levels - 1)[None], "outside the space or the budget"),  # the unpruned network
        (lambda space: space.levels[None], "outside the space"),
        (lambda space: -np.ones((1, len(space)), dtype=np.int64), "outside the space"),
        (lambda space: np.zeros((1, len(space))), "a matrix of integers"),
        (lambda space: np.zeros((1, len(space) + 1), dtype=np.int64), "columns, one per gene"),
        (lambda space: np.zeros(len(space), dtype=np.int64), "columns, one per gene"),
    ],
)
def test_a_proposal_that_is_not_within_space_and_budget_is_rejected(problem: Problem, rows, message: str) -> None:
    search = searcher(Careless, problem.space, problem.budget)
    search.rows = rows(problem.space)  # type: ignore[attr-defined]
    with pytest.raises(InvalidStructure, match=f"Careless.propose returned .*{message}"):
        search.ask()


def test_a_method_that_has_ended_stops_the_search(problem: Problem) -> None:
    search = searcher(Careless, problem.space, problem.budget)
    search.rows = np.zeros((0, len(problem.space)), dtype=np.int64)  # type: ignore[attr-defined]
    assert search.ask() == []


@pytest.mark.parametrize("method", [dict, HillClimber.__init__, 3])
def test_what_is_not_a_searcher_is_rejected(problem: Problem, method: Any) -> None:
    with pytest.raises(InvalidOption, match="subclass of Searcher"):
        searcher(method, problem.space, problem.budget)


# -- the default length of a search ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "evaluations"),
    [("default", 200), ("ide+", 200), ("paper", 2000), ("released", 2000), ("de", 2000), (HillClimber, 200)],
)
def test_the_authors_methods_have_the_authors_length(method: Any, evaluations: int) -> None:
    """Ten individuals for 200 generations in the authors' scripts."""
    assert named_method(method).evaluations == evaluations


def test_the_default_lengths_are_named_in_one_phrase() -> None:
    assert default_evaluations_text() == "200; 2,000 for paper, released, de"


def test_the_documents_state_the_default_length_of_every_method() -> None:
    page = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
    head = "| name | description | use | evaluations by default, at most |"
    rows = page[page.index(head) :].split("\n\n")[0].splitlines()[2:]
    stated = {row.split("`")[1]: int(row.split("|")[-2].replace(",", "")) for row in rows}
    assert stated == {name: method.evaluations for name, method in METHODS.items()}
