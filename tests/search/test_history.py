"""Histories: candidates and queries over them."""

import numpy as np
import pytest

from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidOption
from aacp.search.history import Candidate, History
from aacp.structure import Structure

TOTAL = Cost("total", "", 20.0, lambda rows: rows.sum(axis=1))
FIRST = Cost("first", "", 10.0, lambda rows: rows[:, 0])


def history(*rows: tuple[tuple[int, int], float]) -> History:
    return History(Candidate(i, 0, Structure(counts), score) for i, (counts, score) in enumerate(rows))


def test_arrival_leaves_no_trace_in_the_order() -> None:
    candidates = [Candidate(i, 0, Structure([1, i + 1]), 0.5) for i in range(6)]
    shuffled = [candidates[i] for i in (3, 0, 5, 1, 4, 2)]
    assert list(History(shuffled)) == candidates
    assert History(shuffled) == History(candidates)
    assert History(shuffled).best == candidates[0]  # of equals the one asked for first


def test_a_structure_is_held_once() -> None:
    with pytest.raises(InvalidOption, match="in this history already"):
        history(((1, 2), 0.5), ((1, 2), 0.6))


def test_top_is_sorted_by_score() -> None:
    known = history(((1, 1), 0.2), ((1, 2), 0.9), ((1, 3), 0.5))
    assert [candidate.score for candidate in known.top(2)] == [0.9, 0.5]
    assert known.best == known.top(1)[0]


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
