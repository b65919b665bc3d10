"""Searches of any length: operations are counted, since times depend on the machine (benchmarks/large_history.py)."""

from __future__ import annotations

import shutil
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aacp.bench.problems import Problem
from aacp.channels.structure import Structure
from aacp.runs.files import HISTORY
from aacp.runs.folder import RunFolder
from aacp.search.baselines import RandomSearch, RandomSearchSettings
from aacp.search.history import Candidate, History
from aacp.search.saving import SearchFiles, recorded
from aacp.search.transfer import closest

SHORT, LONG = 500, 4000  # candidates of the searches that are compared


def calls_of(work: Callable[[], Any]) -> int:
    """The number of functions, in Python or C, that some work calls."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def method(problem: Problem) -> RandomSearch:
    return RandomSearch(problem.space, problem.budget, 0, RandomSearchSettings(batch=50))


@pytest.fixture(scope="module")
def folders(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Searches of two lengths that were interrupted after their last checkpoint."""
    found = {}
    for length in (SHORT, LONG):
        search = method(problem)
        files = SearchFiles(RunFolder(tmp_path_factory.mktemp("long") / str(length)))
        while len(search.history) < length:
            batch = search.ask()
            if len(search.history) + len(batch) >= length:
                files.save(search)
            search.tell([(structure, sum(structure) / 1000) for structure in batch])
        files.folder.write_log(HISTORY, (candidate.to_json() for candidate in search.history))
        found[length] = files.folder.path
    return found


def growth(work: Callable[[Path], Callable[[], Any]], folders: dict[int, Path]) -> float:
    """How many times as many operations the long search takes."""
    return calls_of(work(folders[LONG])) / calls_of(work(folders[SHORT]))


@pytest.mark.slow
def test_checkpoint_and_append_take_the_same_whatever_the_length(
    problem: Problem, folders: dict[int, Path], tmp_path: Path
) -> None:
    def saving(folder: Path) -> Callable[[], Any]:
        files, search = SearchFiles(RunFolder(folder)), method(problem)
        files.resume(search)
        search.ask()
        files.save(search)  # the first may have to look at the files
        return lambda: files.save(search)

    def appending(folder: Path) -> Callable[[], Any]:
        log = RunFolder(shutil.copytree(folder, tmp_path / folder.name))
        candidate = Candidate(10**6, 0, Structure([1] * len(problem.space.names)), 0.5).to_json()
        log.append(HISTORY, candidate)  # the first may have to look at the file
        return lambda: log.append(HISTORY, candidate)

    assert growth(saving, folders) < 1.2
    assert growth(appending, folders) < 1.2


@pytest.mark.slow
def test_resuming_takes_time_in_proportion_to_the_length(problem: Problem, folders: dict[int, Path]) -> None:
    def resuming(folder: Path) -> Callable[[], Any]:
        return lambda: SearchFiles(RunFolder(folder)).resume(method(problem))

    assert growth(resuming, folders) < 1.15 * LONG / SHORT
    assert growth(lambda folder: lambda: recorded(folder), folders) < 1.15 * LONG / SHORT


@pytest.mark.slow
def test_queries_take_time_in_proportion_to_the_length(problem: Problem, folders: dict[int, Path]) -> None:
    histories = {path: recorded(path) for path in folders.values()}
    costs = [limit.cost for limit in problem.budget.limits]
    for query in (
        lambda known: known.pareto(costs),
        lambda known: known.rebudget(problem.budget),
        lambda known: closest(known, problem.budget),
        lambda known: History.merged([known, known]),
    ):
        assert growth(lambda folder, query=query: lambda: query(histories[folder]), folders) < 1.5 * LONG / SHORT
    assert growth(lambda folder: lambda: histories[folder].top(400), folders) < 1.2


@pytest.mark.slow
def test_reading_holds_one_line_at_a_time(folders: dict[int, Path]) -> None:
    """Beyond the candidates that remain, reading takes the memory of a few lines."""
    tracemalloc.start()
    known = recorded(folders[LONG])
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(known) >= LONG
    assert peak < 2 * left + 1e6  # the history of the folder, and that of all folders which it is merged into
