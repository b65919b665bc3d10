"""Finalists: how many go on from rung to rung, who they are, and who wins."""

from __future__ import annotations

import pytest

from aacp.runs.chosen import ChosenStructure
from aacp.runs.finalists import Finalist, Finalists, rung_sizes, rungs_text


@pytest.mark.parametrize(
    ("count", "rungs", "sizes"),
    [
        (16, 3, (16, 7, 3)),  # 16, 16^(2/3) = 6.35, 16^(1/3) = 2.52
        (8, 3, (8, 4, 2)),
        (9, 2, (9, 3)),
        (5, 1, (5,)),
        (2, 3, (2, 2, 2)),
    ],
)
def test_sizes_fall_evenly_in_logarithm(count: int, rungs: int, sizes: tuple[int, ...]) -> None:
    assert rung_sizes(count, rungs) == sizes


def test_every_rung_compares_two_or_more_and_whole_powers_stay_whole() -> None:
    for rungs in range(1, 7):
        for count in range(2, 300):
            sizes = rung_sizes(count, rungs)
            assert sizes[0] == count
            assert list(sizes) == sorted(sizes, reverse=True)
            assert sizes[-1] >= 2
        for base in range(2, 11):
            assert rung_sizes(base**rungs, rungs) == tuple(base ** (rungs - rung) for rung in range(rungs))


def finalists(count: int, rungs: tuple[int, ...] = (1, 2, 3)) -> Finalists:
    made = [Finalist(ChosenStructure((number + 1,), 0.5, ()), number == count - 1) for number in range(count)]
    return Finalists(rungs, tuple(made))


def scored(found: Finalists, scores: dict[int, float]) -> Finalists:
    for position, score in scores.items():
        found = found.with_score(position, score)
    return found


def test_the_best_go_on_and_the_best_of_the_last_rung_wins() -> None:
    found = finalists(8)
    assert found.members(0) == list(range(8))
    found = scored(found, {0: 0.1, 1: 0.8, 2: 0.3, 3: 0.9, 4: 0.7, 5: 0.2})
    assert found.untrained(0) == [6, 7]
    assert found.winner is None
    found = scored(found, {6: 0.6, 7: 0.4})
    assert found.members(1) == [1, 3, 4, 6]
    found = scored(found, {3: 0.5, 1: 0.6, 6: 0.9})
    assert found.untrained(1) == [4]
    found = scored(found, {4: 0.1})
    assert found.members(2) == [1, 6]
    found = scored(found, {6: 0.3})
    assert found.winner is None
    found = scored(found, {1: 0.4})  # the score of its last rung counts, not the best that it ever had
    assert found.winner is found.finalists[1]


def test_of_equals_the_better_estimate_goes_on() -> None:
    found = scored(finalists(4, (1, 2)), dict.fromkeys(range(4), 0.5))
    assert found.members(1) == [0, 1]
    assert scored(found, {0: 0.5, 1: 0.5}).winner is not None
    assert scored(found, {0: 0.5, 1: 0.5}).members(2) == [0]


def test_a_single_finalist_wins_without_a_training() -> None:
    found = finalists(1)
    assert found.sizes == ()
    assert found.winner is found.finalists[0]
    assert str(found) == "1, which needs no training"


def test_people_read_who_won_and_where_the_uniform_structure_stopped() -> None:
    found = finalists(3, (1, 30))
    assert str(found) == "3, not finished"
    found = scored(scored(found, {0: 0.5, 1: 0.75, 2: 0.25}), {0: 0.5, 1: 0.8})
    assert str(found) == (
        "3 in rungs of 1, 30 epochs; finalist 2 won with 0.8000 on the hold-out after 30 epochs; "
        "the uniform structure left with 0.2500 on the hold-out after 1 epoch"
    )
    assert found.name(0) == "the choice of the search"


@pytest.mark.parametrize(
    ("rungs", "words"),
    [((1,), "one rung of 1 epoch"), ((5,), "one rung of 5 epochs"), ((1, 30), "rungs of 1, 30 epochs")],
)
def test_rungs_are_counted_in_words(rungs: tuple[int, ...], words: str) -> None:
    assert rungs_text(rungs) == words
    found = scored(finalists(2, rungs), {0: 0.5, 1: 0.25})
    for _ in rungs[1:]:
        found = scored(found, {0: 0.5, 1: 0.25})
    assert str(found).startswith(f"2 in {words}; ")


def test_the_record_is_read_as_it_was_written() -> None:
    found = scored(finalists(3), {0: 0.5, 2: 0.25})
    assert Finalists.from_json(found.to_json()) == found
