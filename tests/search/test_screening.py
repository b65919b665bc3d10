"""Screening: which structures of a search on few images are scored on all, and what its history holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aacp
from aacp.channels.structure import Structure
from aacp.errors import RunMismatch
from aacp.search.baselines import GivenStructures
from aacp.search.history import Candidate, History
from aacp.search.queue import FewImagesQueue, MapQueue, OnFewImages, structure_of
from aacp.search.screening import sample, to_confirm
from small_problem import small_problem

PROBLEM = small_problem()
IMAGES = (500, 5000)


def history(length: int) -> History:
    return History(Candidate(number, 0, Structure([1 + number]), number % 7 / 7) for number in range(length))


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, []),
        (1, [0]),
        (2, [0, 1]),
        (5, [0, 1, 2, 3, 4]),
        (10, list(range(10))),
        (11, [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]),
        (91, list(range(0, 100, 10))),
        (200, [0, 22, 44, 66, 88, 110, 132, 154, 176, 199]),
        (400, [*range(0, 399, 21), 399]),  # 5 % are 20
    ],
)
def test_the_sample_is_spread_evenly_from_the_first_to_the_last(length: int, expected: list[int]) -> None:
    assert [candidate.number for candidate in sample(history(length))] == expected


def test_the_most_promising_structures_and_the_sample_are_confirmed_once_each() -> None:
    method = aacp.searcher("random", PROBLEM.space, PROBLEM.budget, 1)
    aacp.run_search(method, PROBLEM.estimate, evaluations=60)
    best = sorted(method.history, key=lambda each: -each.score)[:10]
    spread = [method.history[position] for position in (0, 6, 13, 19, 26, 32, 39, 45, 52, 59)]
    expected = [each.structure for each in best]
    expected += [each.structure for each in spread if each not in best]
    assert to_confirm(method) == expected
    assert len(set(expected)) == len(expected) > 10


@pytest.mark.slow
def test_the_default_search_finds_promising_what_it_would_recommend() -> None:
    method = aacp.searcher("default", PROBLEM.space, PROBLEM.budget, 1)
    assert method.promising(3) == []
    assert method.recommended is None
    aacp.run_search(method, PROBLEM.estimate, evaluations=40)
    promising = method.promising(40)
    assert promising[0] == method.recommended
    assert sorted(each.number for each in promising) == list(range(40))
    assert promising[:10] != method.history.top(10)  # the model has a say
    assert method.promising(4) == promising[:4]


def test_the_scores_of_a_search_are_recorded_with_their_images(tmp_path: Path) -> None:
    method = aacp.searcher("default", PROBLEM.space, PROBLEM.budget, 1)
    method.images = IMAGES
    found = aacp.run_search(method, PROBLEM.estimate, evaluations=12, folder=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["images"] for line in lines] == [[500, 5000]] * 12
    assert all(candidate.images == IMAGES for candidate in found.history)


@pytest.mark.slow
@pytest.mark.parametrize("proposals", [1, 8])
def test_a_stopped_search_on_few_images_resumes_to_the_same_history(tmp_path: Path, proposals: int) -> None:
    def method() -> aacp.Searcher:
        made = aacp.searcher("default", PROBLEM.space, PROBLEM.budget, 1, proposals=proposals)
        made.images = IMAGES
        return made

    whole = aacp.run_search(method(), PROBLEM.estimate, evaluations=24).history
    for count in (3, 15, 24):
        resumed = aacp.run_search(method(), PROBLEM.estimate, evaluations=count, folder=tmp_path).history
    assert resumed == whole
    restored = aacp.GuidedEvolution.from_state(PROBLEM.space, PROBLEM.budget, method().state())
    assert restored.history == History()


@pytest.mark.slow
def test_early_scores_keep_their_images_in_a_saved_state() -> None:
    method = aacp.searcher("default", PROBLEM.space, PROBLEM.budget, 1, proposals=8)
    method.images = IMAGES
    aacp.run_search(method, PROBLEM.estimate, evaluations=20)
    last = method.ask()[-1]
    method.tell([(last, 0.5)])
    copy = aacp.GuidedEvolution.from_state(PROBLEM.space, PROBLEM.budget, json.loads(json.dumps(method.state())))
    assert [each.images for each in copy.early] == [IMAGES]
    assert copy.early == method.early


def test_scores_of_another_number_of_images_are_not_taken_over(tmp_path: Path) -> None:
    method = aacp.searcher("default", PROBLEM.space, PROBLEM.budget, 1)
    method.images = IMAGES
    aacp.run_search(method, PROBLEM.estimate, evaluations=12, folder=tmp_path)
    (tmp_path / "search.json").unlink()
    other = aacp.searcher("default", PROBLEM.space, PROBLEM.budget, 1)
    with pytest.raises(RunMismatch, match="belongs to a search with other arguments or data"):
        aacp.run_search(other, PROBLEM.estimate, evaluations=14, folder=tmp_path)


def test_given_structures_are_evaluated_in_their_order_and_no_others() -> None:
    found = aacp.run_search(
        aacp.searcher("random", PROBLEM.space, PROBLEM.budget, 5), PROBLEM.estimate, evaluations=7
    ).history
    wanted = [candidate.structure for candidate in found][::-1]
    method = GivenStructures(PROBLEM.space, PROBLEM.budget, start=wanted)
    result = aacp.run_search(method, PROBLEM.estimate, evaluations=50)
    assert result.stopped == "exhausted"
    assert [candidate.structure for candidate in result.history] == wanted


def test_a_queue_on_few_images_says_so_to_the_estimate() -> None:
    seen = []

    def estimate(work: Structure | OnFewImages) -> float:
        seen.append(work)
        return float(sum(structure_of(work)))

    inner = MapQueue(estimate)
    queue = FewImagesQueue(inner)
    for counts in ([1, 2], [3, 4]):
        queue.submit(Structure(counts))
    assert [queue.next_score(), queue.next_score()] == [3.0, 7.0]
    inner.submit(Structure([5]))
    assert inner.next_score() == 5.0
    assert seen == [OnFewImages(Structure([1, 2])), OnFewImages(Structure([3, 4])), Structure([5])]
    queue.submit(Structure([6]))
    queue.clear()
    queue.submit(Structure([7]))
    assert queue.next_score() == 7.0
