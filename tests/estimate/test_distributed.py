"""A search on several processes has the history of a search on one, and no rank waits forever."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy

import aacp
from aacp.runs.folder import RunFolder
from aacp.search.loop import SearchResult, run_search
from estimate.ranks import (
    PROBLEM,
    broken,
    free_port,
    launch,
    method,
    prune_a_network,
    search,
    search_for_a_while,
    search_in_plain_data,
    search_with_other_seeds,
    share,
)
from sampling import sampled

pytestmark = pytest.mark.slow


def alone(name: str, evaluations: int, folder: Path | None = None) -> SearchResult:
    return run_search(method(name), PROBLEM.estimate, evaluations=evaluations, folder=folder)


def logged(folder: Path) -> list[aacp.Candidate]:
    return [aacp.Candidate.from_json(record) for record in RunFolder(folder).read_log("history.jsonl")]


@pytest.mark.parametrize("name", [*sampled(["default", "paper"], 2), "batched"])
def test_every_rank_of_two_gets_the_history_of_one_process(name: str, tmp_path: Path) -> None:
    expected = alone(name, 57)
    for ending in launch(search, name, 57, tmp_path):
        assert ending.returned == expected
    assert logged(tmp_path) == list(expected.history)


def test_a_real_network_scores_the_same_to_the_last_bit_on_one_rank_and_two() -> None:
    one, *two = [*launch(prune_a_network, size=1), *launch(prune_a_network, size=2)]
    assert len({candidate.score for candidate in one.returned.history}) > 10
    assert all(ending.returned == one.returned for ending in two)


def test_ranks_take_turns_and_none_waits_for_more_structures_than_there_are() -> None:
    shares = [ending.returned for ending in launch(share, "batched", 20, size=3)]
    generations: dict[int, list[aacp.Structure]] = {}
    for candidate in alone("batched", 20).history:
        generations.setdefault(candidate.generation, []).append(candidate.structure)
    assert min(map(len, generations.values())) < 3
    for rank, given in enumerate(shares):
        assert given == [structure for batch in generations.values() for structure in batch[rank::3]]


def test_fabric_launches_it_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", str(free_port()))  # fabric would set it, and leave it set
    fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(start_method="forkserver"))
    found = fabric.launch(search_in_plain_data, "ide+", 30)
    assert found == [candidate.to_json() for candidate in alone("ide+", 30).history]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_search_interrupted_on_two_processes_is_resumed_on_one(rank: int, tmp_path: Path) -> None:
    expected = alone("ide+", 40)
    for ending in launch(broken, "ide+", rank, 7, KeyboardInterrupt(), 40, tmp_path):
        assert ending.returned.stopped == "interrupted"
        assert list(ending.returned.history) == list(expected.history)[: 2 * 6 + rank] == logged(tmp_path)
    assert alone("ide+", 40, tmp_path) == expected


def test_a_search_interrupted_on_one_process_is_resumed_on_two(tmp_path: Path) -> None:
    alone("default", 11, tmp_path)
    expected = alone("default", 30)
    assert [ending.returned for ending in launch(search, "default", 30, tmp_path)] == [expected, expected]


def test_ctrl_c_in_the_terminal_of_all_ranks_ends_the_search_in_good_order(tmp_path: Path) -> None:
    expected = alone("ide+", 60)
    for ending in launch(broken, "ide+", 1, 6, "ctrl-c", 60, tmp_path):
        assert ending.returned.stopped == "interrupted"
        history = list(ending.returned.history)
        assert 9 <= len(history) <= 12
        assert history == list(expected.history)[: len(history)]
    assert alone("ide+", 60, tmp_path) == expected


def test_an_interrupt_before_the_first_score_is_an_interrupt_on_every_rank(tmp_path: Path) -> None:
    endings = launch(broken, "ide+", 0, 1, KeyboardInterrupt(), 40, tmp_path)
    assert [type(ending.raised) for ending in endings] == [KeyboardInterrupt] * 2


def test_the_clock_of_rank_0_ends_the_search_of_all() -> None:
    one, other = [ending.returned for ending in launch(search_for_a_while)]
    assert one.stopped == "seconds"
    assert one == other


def test_an_error_of_ours_on_one_rank_is_the_error_of_all(tmp_path: Path) -> None:
    error = aacp.InvalidScore("The score is nan. Return a number.")
    for ending in launch(broken, "ide+", 1, 3, error, 40, tmp_path, size=3):
        assert type(ending.raised) is aacp.InvalidScore
        assert str(ending.raised) == str(error)
    assert len(logged(tmp_path)) == 7
    assert alone("ide+", 40, tmp_path) == alone("ide+", 40)


@pytest.mark.parametrize("rank", [0, 1])
def test_any_other_error_stays_what_it_is_on_its_rank_and_names_it_on_the_rest(rank: int, tmp_path: Path) -> None:
    endings = launch(broken, "ide+", rank, 3, ZeroDivisionError("by zero\nand more"), 40, tmp_path)
    assert type(endings[rank].raised) is ZeroDivisionError
    other = endings[1 - rank].raised
    assert type(other) is aacp.WorkerFailed
    assert f"Rank {rank} failed: ZeroDivisionError: by zero." in str(other)
    assert alone("ide+", 40, tmp_path) == alone("ide+", 40)


@pytest.mark.timing
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_others_soon_and_costs_a_few_scores(rank: int, tmp_path: Path) -> None:
    begun = time.monotonic()
    endings = launch(broken, "ide+", rank, 3, "killed", 40, tmp_path, size=3)
    assert time.monotonic() - begun < 20
    assert endings.pop(rank).killed
    for ending in endings:
        assert type(ending.raised) is aacp.WorkerFailed
        assert f"Rank {rank} ended before the search did" in str(ending.raised)
    assert len(logged(tmp_path)) == 6 + rank
    assert alone("ide+", 40, tmp_path) == alone("ide+", 40)


def test_ranks_that_search_for_different_things_are_rejected() -> None:
    for ending in launch(search_with_other_seeds):
        assert type(ending.raised) is aacp.RunMismatch
        assert "seed" in str(ending.raised)


def test_a_folder_in_use_is_rejected_on_every_rank(tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock():
        endings = launch(search, "ide+", 20, tmp_path)
    assert [type(ending.raised) for ending in endings] == [aacp.RunLocked] * 2


def test_a_fabric_that_was_not_launched_is_rejected() -> None:
    with pytest.raises(aacp.errors.InvalidOption, match="`launch` before"):
        search(Fabric(accelerator="cpu", devices=2), "ide+", 20)
