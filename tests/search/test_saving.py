"""A search in its folder: what is lost is restored or evaluated again, what is foreign is rejected."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aacp.bench.problems import Problem
from aacp.bench.rivals import COMPARED, compared_method
from aacp.channels.structure import Structure
from aacp.errors import RunMismatch
from aacp.runs.files import CHECKPOINT, HISTORY
from aacp.runs.folder import RunFolder
from aacp.search.history import Candidate, History
from aacp.search.loop import run_search
from aacp.search.methods import searcher
from aacp.search.searcher import Searcher
from sampling import sampled

LENGTH = 30  # evaluations of a whole search
OLDER = Path(__file__).parent / "older"  # searches that version 0.1.0 of November 2026 was interrupted in
every_method = pytest.mark.parametrize("method", sampled(COMPARED, 3))


class Counted:
    """An estimate that counts its calls, and that is interrupted before a number of them."""

    def __init__(self, problem: Problem, allowed: int = 10**6) -> None:
        self.problem = problem
        self.allowed = allowed
        self.calls = 0

    def __call__(self, structure: Structure) -> float:
        if self.calls == self.allowed:
            raise KeyboardInterrupt
        self.calls += 1
        return self.problem.estimate(structure)


def fresh(problem: Problem, method: str = "ide+", seed: int = 7) -> Searcher[Any]:
    return searcher(compared_method(method), problem.space, problem.budget, seed=seed)


def interrupted(problem: Problem, folder: Path, method: str = "ide+", at: int = 25) -> Path:
    """The folder of a search that was interrupted after some evaluations."""

    def search() -> None:
        run_search(fresh(problem, method), Counted(problem, at), evaluations=LENGTH, folder=folder)

    return made_once(folder, (method, at), search)


def resumed(problem: Problem, folder: Path, method: str = "ide+") -> tuple[History, int]:
    """The history of the resumed search, and how many evaluations that took."""
    estimate = Counted(problem)
    return run_search(fresh(problem, method), estimate, evaluations=LENGTH, folder=folder).history, estimate.calls


def whole_log(problem: Problem, folder: Path, method: str = "ide+") -> bytes:
    """The history.jsonl of a search that was never interrupted."""

    def search() -> None:
        run_search(fresh(problem, method), problem.estimate, evaluations=LENGTH, folder=folder)

    return (made_once(folder, (method, LENGTH), search) / HISTORY).read_bytes()


_files: dict[tuple[str, int], dict[str, bytes]] = {}


def made_once(folder: Path, key: tuple[str, int], search: Callable[[], None]) -> Path:
    """The folder of a search. The first test that needs this search runs it, later ones get copies of its files."""
    if key not in _files:
        search()
        _files[key] = files_of(folder)
    folder.mkdir(exist_ok=True)
    for name, content in _files[key].items():
        (folder / name).write_bytes(content)
    return folder


def without_lines(log: Path, lost: Callable[[int], bool]) -> int:
    """Remove the lines whose position is chosen; the number of lines that are left."""
    lines = [line for place, line in enumerate(log.read_bytes().splitlines(True)) if not lost(place)]
    log.write_bytes(b"".join(lines))
    return len(lines)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


# -- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "first"),
    [pytest.param("default", 20, marks=pytest.mark.slow), ("ide+", 20), ("random", 20), ("fig3", 120)],
)
def test_the_checkpoint_does_not_grow_with_the_history(method: str, first: int, problem: Problem) -> None:
    search = fresh(problem, method)
    run_search(search, problem.estimate, evaluations=first)
    search.ask()
    early = len(json.dumps(search.checkpoint()))
    run_search(search, problem.estimate, evaluations=3 * first)
    search.ask()
    assert len(json.dumps(search.checkpoint())) < 1.3 * early
    assert "history" not in search.checkpoint()
    assert search.checkpoint()["evaluated"] == len(search.history)


# -- lost files and lines ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_method
@pytest.mark.parametrize("lost", [{0}, {3, 7, 22}, set(range(25))])
def test_lost_lines_are_evaluated_again_and_the_log_gets_the_same_bytes(
    method: str, lost: set[int], problem: Problem, tmp_path: Path
) -> None:
    expected = whole_log(problem, tmp_path / "whole", method)
    folder = interrupted(problem, tmp_path / "cut", method)
    left = without_lines(folder / HISTORY, lost.__contains__)
    _, calls = resumed(problem, folder, method)
    assert calls == len(expected.splitlines()) - left
    assert (folder / HISTORY).read_bytes() == expected


@pytest.mark.slow
@every_method
def test_a_lost_checkpoint_costs_no_evaluation(method: str, problem: Problem, tmp_path: Path) -> None:
    expected = whole_log(problem, tmp_path / "whole", method)
    folder = interrupted(problem, tmp_path / "cut", method)
    known = len((folder / HISTORY).read_bytes().splitlines())
    (folder / CHECKPOINT).unlink()
    _, calls = resumed(problem, folder, method)
    assert calls == len(expected.splitlines()) - known
    assert (folder / HISTORY).read_bytes() == expected


@pytest.mark.slow
def test_a_checkpoint_older_than_the_history_is_continued_with_its_scores(problem: Problem, tmp_path: Path) -> None:
    expected = whole_log(problem, tmp_path / "whole")
    folder = interrupted(problem, tmp_path / "cut", at=12)
    early = (folder / CHECKPOINT).read_bytes()
    resumed(problem, folder)
    (folder / CHECKPOINT).write_bytes(early)
    history, calls = resumed(problem, folder)
    assert calls == 0
    assert len(history) == LENGTH
    assert (folder / HISTORY).read_bytes() == expected


@pytest.mark.slow
def test_what_was_lost_is_said(problem: Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = interrupted(problem, tmp_path)
    assert without_lines(folder / HISTORY, lambda place: place in (2, 3)) == 23
    resumed(problem, folder)
    assert "has lost 2 of 20 candidates" in capsys.readouterr().err  # five more were scored after the checkpoint
    (folder / CHECKPOINT).write_text("{")
    resumed(problem, folder)
    assert "search.json is damaged" in capsys.readouterr().err
    resumed(problem, folder)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", "7", '{"method": 3}', '{"checksum": "0"}'])
def test_a_checkpoint_that_is_none_is_not_needed(content: str, problem: Problem, tmp_path: Path) -> None:
    expected = whole_log(problem, tmp_path / "whole")
    folder = interrupted(problem, tmp_path / "cut")
    (folder / CHECKPOINT).write_text(content)
    assert resumed(problem, folder)[1] == LENGTH - 25
    assert (folder / HISTORY).read_bytes() == expected


@pytest.mark.slow
def test_no_flipped_bit_of_a_checkpoint_changes_the_search(problem: Problem, tmp_path: Path) -> None:
    expected = whole_log(problem, tmp_path / "whole")
    folder = interrupted(problem, tmp_path / "cut")
    content = (folder / CHECKPOINT).read_bytes()
    log = (folder / HISTORY).read_bytes()
    for place in range(5, len(content), 331):
        flipped = bytearray(content)
        flipped[place] ^= 1
        (folder / CHECKPOINT).write_bytes(flipped)
        (folder / HISTORY).write_bytes(log)
        assert resumed(problem, folder)[1] == LENGTH - 25
        assert (folder / HISTORY).read_bytes() == expected


# -- foreign and changed files ----------------------------------------------------------------------------------------


def test_a_score_that_was_changed_is_evaluated_again(problem: Problem, tmp_path: Path) -> None:
    expected = whole_log(problem, tmp_path / "whole")
    folder = interrupted(problem, tmp_path / "cut")
    lines = (folder / HISTORY).read_text().splitlines()
    record = json.loads(lines[4])
    lines[4] = json.dumps({**record, "score": record["score"] + 1e-9})
    (folder / HISTORY).write_text("\n".join(lines) + "\n")
    assert resumed(problem, folder)[1] == LENGTH - 25 + 1
    assert (folder / HISTORY).read_bytes() == expected
    assert (folder / f"{HISTORY}.damaged").read_text().splitlines()[4] == lines[4]


def test_the_history_of_another_search_is_rejected(problem: Problem, tmp_path: Path) -> None:
    folder = interrupted(problem, tmp_path / "mine")
    run_search(fresh(problem, seed=8), problem.estimate, evaluations=LENGTH, folder=tmp_path / "other")
    shutil.copy(tmp_path / "other" / HISTORY, folder / HISTORY)
    before = files_of(folder)
    with pytest.raises(RunMismatch, match="was changed"):
        resumed(problem, folder)
    assert files_of(folder) == before
    (folder / CHECKPOINT).unlink()
    with pytest.raises(RunMismatch, match=r"number 0, which this search does not propose.*--from"):
        resumed(problem, folder)
    assert (folder / HISTORY).read_bytes() == before[HISTORY]


@pytest.mark.parametrize(
    "line", ["[]", "3", '{"number": 0}', '{"number": 0, "generation": 0, "counts": 5, "score": 1}']
)
def test_a_line_that_is_not_a_candidate_is_named(line: str, problem: Problem, tmp_path: Path) -> None:
    folder = interrupted(problem, tmp_path)
    with (folder / HISTORY).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RunMismatch, match=r"history\.jsonl, line 26: .* is not a candidate .* remove this line"):
        resumed(problem, folder)


def test_a_line_that_occurs_twice_counts_once_unless_its_score_differs(problem: Problem, tmp_path: Path) -> None:
    expected = whole_log(problem, tmp_path / "whole")
    folder = interrupted(problem, tmp_path / "cut")
    first = (folder / HISTORY).read_text().splitlines()[0]
    RunFolder(folder).append(HISTORY, json.loads(first))
    history, calls = resumed(problem, folder)
    assert calls == LENGTH - 25
    assert history == History(Candidate.from_json(json.loads(line)) for line in expected.splitlines())
    RunFolder(folder).append(HISTORY, {**json.loads(first), "score": 0.0})
    with pytest.raises(RunMismatch, match=r"score 0\.0, which an earlier line has with score"):
        resumed(problem, folder)


# -- files of older versions, and methods without a folder ------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 5, 20])
def test_a_search_of_an_older_version_is_resumed_and_its_lost_lines_are_restored(
    lost: int, problem: Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = whole_log(problem, tmp_path / "whole")
    folder = shutil.copytree(OLDER / "ide", tmp_path / "old")
    assert "history" in json.loads((folder / CHECKPOINT).read_text())
    without_lines(folder / HISTORY, lambda place: place < lost)
    assert resumed(problem, folder)[1] == LENGTH - 25  # the checkpoint holds the first 20
    log = [json.loads(line) for line in (folder / HISTORY).read_bytes().splitlines()]
    sealed = [json.loads(line) for line in expected.splitlines()]
    assert [{**line, "crc32": right["crc32"]} for line, right in zip(log, sealed, strict=True)] == sealed
    assert (f"had lost {lost} candidates" in capsys.readouterr().err) == (lost > 0)
    assert "history" not in json.loads((folder / CHECKPOINT).read_text())


@pytest.mark.slow
def test_the_default_method_continues_from_an_older_version(problem: Problem, tmp_path: Path) -> None:
    folder = shutil.copytree(OLDER / "default", tmp_path / "old")
    before = (folder / HISTORY).read_bytes()
    assert resumed(problem, folder, "default")[1] == LENGTH - 16
    assert (folder / HISTORY).read_bytes().startswith(before)


def test_evaluations_without_a_folder_are_written_to_the_first_folder(problem: Problem, tmp_path: Path) -> None:
    expected = whole_log(problem, tmp_path / "whole")
    search = fresh(problem)
    run_search(search, problem.estimate, evaluations=14)
    run_search(search, Counted(problem, 3), evaluations=LENGTH, folder=tmp_path / "later")
    assert resumed(problem, tmp_path / "later")[1] == LENGTH - 17
    assert (tmp_path / "later" / HISTORY).read_bytes() == expected
