"""The lookup in one array gives the same sums as a loop over the pieces."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aacp.latency.lookup import Lookup
from aacp.latency.pieces import Piece, Width

CHOICES = {"a": (4, 8, 12, 16), "b": (8, 16, 32)}


def piece(kind: str, *widths: str) -> Piece:
    """A piece with a width for each string, which is the sum of the groups that the string names."""
    return Piece("layer", kind, (), tuple(Width(0, tuple((name, 1) for name in names)) for names in widths))


def product_of(a: int, b: int) -> float:
    return 1e-6 + 1e-8 * a * b


def test_it_is_the_sum_of_all_pieces_for_every_structure() -> None:
    counts = np.array(list(itertools.product(*CHOICES.values())))
    seconds = np.array([[product_of(a, b), 1e-7 * (a + b), 5e-6] for a, b in counts])
    pieces = [piece("x", "a", "b"), piece("y", "ab"), piece("z")]
    lookup = Lookup.fit(pieces, tuple(CHOICES), tuple(CHOICES.values()), counts, seconds)
    assert lookup(counts) == pytest.approx(seconds.sum(axis=1), rel=0.02)
    assert lookup(counts[:1]) == pytest.approx(lookup(counts)[:1])
    between = lookup(np.array([[10, 24]]))[0]
    assert between == pytest.approx(product_of(10, 24) + 34e-7 + 5e-6, rel=0.02)


@pytest.mark.parametrize("scale", [1e-8, 2e-8], ids=["all", "some"])
def test_times_that_a_profiler_rounds_to_zero_are_accepted(scale: float) -> None:
    counts = np.array(list(itertools.product(*CHOICES.values())))
    seconds = np.array([[product_of(a, b), scale * (a + b)] for a, b in counts])
    rounded = np.stack([seconds[:, 0], np.round(seconds[:, 1], 6)], axis=1)
    assert (rounded[:, 1] == 0).any()
    pieces = [piece("x", "a", "b"), piece("y", "ab")]
    lookup = Lookup.fit(pieces, tuple(CHOICES), tuple(CHOICES.values()), counts, rounded)
    assert lookup(counts) == pytest.approx(seconds.sum(axis=1), abs=6e-7)


def test_grids_of_a_fine_space_stay_small_and_keep_multiples() -> None:
    wide = tuple(range(1, 1025))
    counts = np.random.default_rng(0).integers(1, 1025, size=(30, 2))
    seconds = 1e-9 * counts.prod(axis=1)[:, None]
    lookup = Lookup.fit([piece("x", "a", "b")], ("a", "b"), (wide, wide), counts, seconds)
    assert len(lookup.values) <= 2**14
    assert lookup(np.array([[512, 512]]))[0] == pytest.approx(1e-9 * 512 * 512, rel=0.05)
