"""Which structures of a search become finalists."""

from __future__ import annotations

import numpy as np
import pytest

from aacp.channels.structure import Structure
from aacp.pipeline.finalists import best_apart
from aacp.search.history import Candidate


def ranked(*structures: tuple[int, ...]) -> list[Candidate]:
    return [Candidate(number, 0, Structure(counts), 1 - number / 1000) for number, counts in enumerate(structures)]


def taken(first: tuple[int, ...], candidates: list[Candidate], count: int, channels: float) -> list[tuple[int, ...]]:
    return [candidate.structure.counts for candidate in best_apart(Structure(first), candidates, count, channels)]


def test_a_candidate_near_one_that_is_taken_is_left_out() -> None:
    near_first, far, near_far, last = (8, 7), (4, 8), (4, 7), (8, 2)
    candidates = ranked(near_first, far, near_far, last)
    assert taken((8, 8), candidates, 2, 3) == [far, last]
    assert taken((8, 8), candidates, 3, 1) == [near_first, far, near_far]


def test_the_distance_counts_the_channels_of_all_groups() -> None:
    assert taken((8, 8, 8), ranked((7, 8, 8), (7, 9, 7), (8, 8, 7)), 1, 3) == [(7, 9, 7)]


def test_the_distance_is_halved_until_there_are_enough() -> None:
    candidates = ranked((8, 7), (8, 6), (8, 5), (8, 4))
    assert taken((8, 8), candidates, 1, 8) == [(8, 4)]
    assert taken((8, 8), candidates, 2, 8) == [(8, 6), (8, 4)]  # four channels leave one, two leave these
    assert taken((8, 8), candidates, 3, 8) == [(8, 7), (8, 6), (8, 5)]


def test_all_are_taken_if_there_are_not_more() -> None:
    candidates = ranked((8, 7), (8, 6))
    assert taken((8, 8), candidates, 2, 100) == taken((8, 8), candidates, 3, 100) == [(8, 7), (8, 6)]
    assert taken((8, 8), candidates, 0, 1) == []


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_that_of_a_plain_loop(seed: int) -> None:
    generator = np.random.default_rng(seed)
    found = {tuple(int(count) for count in generator.integers(1, 9, 6)) for _ in range(200)}
    first, *others = sorted(found, key=lambda counts: generator.random())

    def within(channels: float) -> list[tuple[int, ...]]:
        chosen = [first]
        for counts in others:
            gaps = [sum(abs(a - b) for a, b in zip(counts, known, strict=True)) for known in chosen]
            if min(gaps) >= channels and len(chosen) < 13:
                chosen.append(counts)
        return chosen[1:]

    expected = next(chosen for halvings in range(9) if len(chosen := within(24 / 2**halvings)) == 12)
    assert taken(first, ranked(*others), 12, 24) == expected
