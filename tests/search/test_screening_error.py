"""The stated error of scores on few images."""

from __future__ import annotations

import math

import pytest

from aacp.channels.structure import Structure
from aacp.search.history import Candidate, History
from aacp.search.screening_error import ScreeningError

FEW, ALL = (50, 500), (500, 500)


def scores(*values: float, images: tuple[int, int] | None = FEW, skip: tuple[int, ...] = ()) -> History:
    rows = enumerate(values)
    return History(Candidate(i, 0, Structure([1 + i]), score, images) for i, score in rows if i not in skip)


def test_the_error_has_the_moments_and_the_rank_correlation_of_the_sample() -> None:
    # Differences 0.1, 0.0, 0.2, -0.1: mean 0.05, squares around it 0.0025 + 0.0025 + 0.0225 + 0.0225 = 0.05, by 3.
    # Ranks of few 1 2 4 3 and of all 1 3 2 4: squared differences 0 + 1 + 4 + 1, rho = 1 - 6 * 6 / (4 * 15).
    error = ScreeningError.of(scores(0.2, 0.4, 0.6, 0.5), scores(0.1, 0.4, 0.4, 0.6, images=ALL))
    assert error is not None
    assert (error.structures, error.images) == (4, FEW)
    assert error.mean == pytest.approx(0.05)
    assert error.deviation == pytest.approx(math.sqrt(0.05 / 3))


def test_ranks_are_compared_by_spearman() -> None:
    error = ScreeningError.of(scores(0.2, 0.4, 0.6, 0.5), scores(0.1, 0.4, 0.3, 0.6, images=ALL))
    assert error is not None
    assert error.correlation == pytest.approx(1 - 6 * 6 / (4 * 15))


def test_only_structures_of_the_sample_count() -> None:
    # Of 200 structures, the sample has numbers 0, 22, 44, ..., 176, 199. Others, even with large errors, are ignored.
    confirmed = [number / 200 for number in range(200)]
    searched = [score + (0.01 if number in (0, 22, 44) else 0.0) for number, score in enumerate(confirmed)]
    searched[1] = 0.9
    kept = (0, 1, 22, 44, 66)
    missing = tuple(number for number in range(200) if number not in kept)
    error = ScreeningError.of(scores(*searched), scores(*confirmed, images=ALL, skip=missing))
    assert error is not None
    assert error.structures == 4
    assert error.mean == pytest.approx(0.0075)


def test_a_search_on_all_images_and_a_short_one_have_no_error() -> None:
    assert ScreeningError.of(scores(0.1, 0.2), scores(0.1, 0.2, images=ALL)) is None
    assert ScreeningError.of(scores(0.1, 0.2, 0.3, images=None), scores(0.1, 0.2, 0.3, images=ALL)) is None
    assert ScreeningError.of(History(), History()) is None


def test_the_sentence_has_the_unit_of_the_score() -> None:
    error = ScreeningError((500, 5000), 10, -0.0123, 0.004, 0.912)
    assert error.text(100, " points") == (
        "Scores on 500 images differ from those on 5,000 by -1.2 ± 0.4 points (mean and standard deviation over 10 "
        "structures, taken at even intervals from the search), with a rank correlation of 0.91."
    )
    assert "by -0.012 ± 0.004 (mean" in error.text()
