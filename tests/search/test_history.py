"""Histories: candidates and queries over them."""

import numpy as np
import pytest

from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidOption, InvalidStructure, RunMismatch
from aacp.search.history import TOP_KEPT, Candidate, History

TOTAL = Cost("total", "", 20.0, lambda rows: rows.sum(axis=1))
FIRST = Cost("first", "", 10.0, lambda rows: rows[:, 0])


def history(*rows: tuple[tuple[int, int], float]) -> History:
    return History(Candidate(i, 0, Structure(counts), score) for i, (counts, score) in enumerate(rows))


def test_arrival_leaves_no_trace_in_the_order() -> None:
    candidates = [Candidate(i, 0, Structure([1, i + 1]), 0.5) for i in range(6)]
    shuffled = [candidates[i] for i in (3, 0, 5, 1, 4, 2)]
    assert list(History(shuffled)) == candidates
    assert History(shuffled) == History(candidates)
    assert History(shuffled).best == candidates[0]  # with equal scores, the one proposed first


def test_a_structure_is_held_once() -> None:
    with pytest.raises(InvalidOption, match="in this history already"):
        history(((1, 2), 0.5), ((1, 2), 0.6))


def test_top_is_sorted_by_score() -> None:
    known = history(((1, 1), 0.2), ((1, 2), 0.9), ((1, 3), 0.5))
    assert [candidate.score for candidate in known.top(2)] == [0.9, 0.5]
    assert known.best == known.top(1)[0]


def test_any_number_of_the_best_is_what_sorting_gives() -> None:
    generator = np.random.default_rng(1)
    scores = generator.integers(0, 40, size=1200) / 40  # many are equal
    candidates = [Candidate(i, 0, Structure([1 + i // 50, 1 + i % 50]), float(s)) for i, s in enumerate(scores)]
    known = History(candidates[i] for i in generator.permutation(1200))
    expected = sorted(candidates, key=lambda candidate: (-candidate.score, candidate.number))
    for count in (0, 1, 400, TOP_KEPT, TOP_KEPT + 1, 1100, 5000):
        assert known.top(count) == expected[:count]


def test_costs_in_parts_are_the_costs_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    known = history(*(((1 + i, 1 + i % 7), i / 50) for i in range(50)))
    monkeypatch.setattr("aacp.search.history.PART", 8)
    assert [len(part) for part in known.counts_in_parts()] == [8] * 6 + [2]
    expected = [[sum(candidate.structure), candidate.structure[0]] for candidate in known]
    assert known.costs([TOTAL, FIRST]).tolist() == expected
    assert known.costs([]).shape == (50, 0)
    assert History().costs([TOTAL]).shape == (0, 1)


def test_a_history_has_the_structures_of_one_network() -> None:
    with pytest.raises(InvalidStructure, match="has 3 counts, but the structures of this history have 2"):
        History([Candidate(0, 0, Structure([1, 2]), 0.5), Candidate(1, 0, Structure([1, 2, 3]), 0.5)])


def test_merged_is_numbered_anew_and_keeps_the_first_of_equal_structures() -> None:
    one = history(((1, 1), 0.2), ((1, 2), 0.9))
    other = history(((1, 2), 0.1), ((1, 3), 0.5))
    found = [(known.number, known.structure.counts, known.score) for known in History.merged([one, other])]
    assert found == [(0, (1, 1), 0.2), (1, (1, 2), 0.9), (2, (1, 3), 0.5)]


def test_pareto_is_what_a_double_loop_finds() -> None:
    generator = np.random.default_rng(0)
    counts = {tuple(row) for row in generator.integers(1, 11, size=(60, 2)).tolist()}
    known = history(*((pair, round(float(generator.random()), 1)) for pair in sorted(counts)))

    def beats(one: Candidate, other: Candidate) -> bool:
        mine = (-one.score, sum(one.structure), one.structure[0])
        theirs = (-other.score, sum(other.structure), other.structure[0])
        return all(a <= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs

    expected = {one for one in known if not any(beats(other, one) for other in known)}
    found = known.pareto([TOTAL, FIRST])
    assert set(found) == expected
    assert 1 < len(found) < len(known)
    assert [candidate.score for candidate in found] == sorted((c.score for c in found), reverse=True)
    assert History().pareto([TOTAL]) == []


def test_rebudget_is_the_best_that_fits_the_other_budget() -> None:
    known = history(((9, 9), 0.9), ((4, 5), 0.7), ((2, 6), 0.8), ((1, 1), 0.1))
    assert known.rebudget(Budget(Limit(TOTAL, at_most=9))) == known[2]
    assert known.rebudget(Budget(Limit(TOTAL, at_most=9), Limit(FIRST, at_most=1))) == known[3]
    assert known.rebudget(Budget(Limit(TOTAL, at_most=1))) is None


def test_a_candidate_survives_json() -> None:
    candidate = Candidate(3, 1, Structure([4, 8]), 0.123456789012345)
    assert Candidate.from_json(candidate.to_json()) == candidate


@pytest.mark.parametrize(
    "change",
    [{"number": True}, {"number": -1}, {"generation": 0.5}, {"score": "1"}, {"score": None}, {"counts": []},
     {"counts": [0]}, {"counts": [10**30]}, {"counts": "12"}, {"number": 10**30}],
)  # fmt: skip
def test_what_is_not_a_candidate_is_rejected(change: dict[str, object]) -> None:
    with pytest.raises(RunMismatch, match="is not a candidate of a search"):
        Candidate.from_json({**Candidate(3, 1, Structure([4, 8]), 0.5).to_json(), **change})


def test_a_fingerprint_differs_with_every_part_of_a_candidate() -> None:
    variants = [
        Candidate(3, 1, Structure([4, 8]), 0.5),
        Candidate(4, 1, Structure([4, 8]), 0.5),
        Candidate(3, 2, Structure([4, 8]), 0.5),
        Candidate(3, 1, Structure([8, 4]), 0.5),
        Candidate(3, 1, Structure([4, 8]), 0.5 + 1e-16),
    ]
    assert len({candidate.fingerprint for candidate in variants}) == 5
    assert Candidate.from_json(variants[0].to_json()).fingerprint == variants[0].fingerprint


# -- scores on few images ----------------------------------------------------------------------------------------------

FEW, ALL = (50, 500), (500, 500)


def scored(*rows: tuple[tuple[int, int], float, tuple[int, int] | None]) -> History:
    return History(Candidate(i, i, Structure(counts), score, images) for i, (counts, score, images) in enumerate(rows))


def test_a_candidate_says_how_many_images_it_was_scored_on() -> None:
    plain = {"number": 3, "generation": 1, "counts": [4, 5], "score": 0.25}
    assert Candidate.from_json(plain).to_json() == plain  # a line of a search on all images, or of an older version
    few = Candidate.from_json({**plain, "images": [50, 500]})
    assert few.images == FEW
    assert few.to_json() == {**plain, "images": [50, 500]}
    assert [Candidate.from_json(plain).is_whole, few.is_whole] == [True, False]
    assert Candidate.from_json({**plain, "images": [500, 500]}).is_whole


@pytest.mark.parametrize("images", [[0, 500], [600, 500], [50], [50.0, 500], [True, 500], 50, None, "50", [50, 2**60]])
def test_a_number_of_images_that_no_search_writes_is_rejected(images: object) -> None:
    with pytest.raises(RunMismatch, match="is not a candidate of a search"):
        Candidate.from_json({"number": 3, "generation": 1, "counts": [4, 5], "score": 0.25, "images": images})


def test_the_fingerprint_depends_on_the_images_of_a_score() -> None:
    found = {Candidate(0, 0, Structure([4]), 0.5, images).fingerprint for images in (None, FEW, ALL, (60, 500))}
    assert len(found) == 4


def test_scores_on_all_images_come_before_scores_on_few() -> None:
    known = scored(((1, 1), 0.9, FEW), ((1, 2), 0.5, ALL), ((1, 3), 0.7, None), ((1, 4), 0.8, FEW))
    assert [candidate.number for candidate in known.top(4)] == [2, 1, 0, 3]
    assert known.best == known[2]
    assert [candidate.number for candidate in known.whole] == [1, 2]


def test_fronts_and_other_budgets_leave_scores_on_few_images_out() -> None:
    known = scored(((1, 1), 0.9, FEW), ((1, 2), 0.5, ALL), ((1, 3), 0.7, ALL), ((1, 4), 0.6, ALL))
    assert [candidate.number for candidate in known.pareto([TOTAL])] == [2, 1]
    budget = Budget(Limit(TOTAL, at_most=3))
    assert [candidate.number for candidate in known.within(budget)] == [1]
    assert known.rebudget(budget) == known[1]


def test_of_two_scores_of_a_structure_that_on_all_images_counts() -> None:
    searched = scored(((1, 1), 0.9, FEW), ((1, 2), 0.5, FEW), ((1, 3), 0.4, ALL))
    confirmed = scored(((1, 3), 0.3, ALL), ((1, 2), 0.6, ALL), ((2, 2), 0.1, FEW))
    for order in ([searched, confirmed], [searched, confirmed, scored(((1, 2), 0.8, FEW))]):
        merged = [candidate.to_json() for candidate in History.merged(order)]
        assert [(each["counts"], each["score"], each["images"]) for each in merged] == [
            ([1, 1], 0.9, [50, 500]),
            ([1, 2], 0.6, [500, 500]),
            ([1, 3], 0.4, [500, 500]),  # the first on all images
            ([2, 2], 0.1, [50, 500]),
        ]
        assert [(each["number"], each["generation"]) for each in merged] == [(0, 0), (1, 1), (2, 2), (3, 2)]
