"""Pareto fronts: what comparing all pairs gives, in fewer comparisons."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.search import pareto
from aacp.search.history import Candidate, History
from aacp.search.pareto import unbeaten


def by_pairs(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """For each row, whether no other row is at most as large in every column and smaller in one."""
    no_worse = (losses[:, None] <= losses[None]).all(axis=2)
    return ~(no_worse & ~no_worse.T).any(axis=0)


def mixed(generator: np.random.Generator, rows: int, columns: int, kind: str) -> NDArray[np.float64]:
    values = generator.random((rows, columns))
    if kind == "ties":
        return np.floor(8 * values)
    if kind == "trade-off":  # no row beats another
        values[:, -1] = -values[:, :-1].sum(axis=1)
    if kind == "infinite":
        values[values > 0.8] = np.inf
    return values


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.integers(0, 400),
    st.integers(1, 5),
    st.sampled_from(["random", "ties", "trade-off", "infinite"]),
    st.integers(0, 10**6),
    st.sampled_from([1, 64, pareto.FEW_PAIRS]),
)
def test_a_front_is_what_comparing_all_pairs_gives(rows: int, columns: int, kind: str, seed: int, few: int) -> None:
    losses = mixed(np.random.default_rng(seed), rows, columns, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pareto, "FEW_PAIRS", few)  # so that small inputs are divided too
        np.testing.assert_array_equal(unbeaten(losses), by_pairs(losses))


def test_equal_rows_stay_or_go_together() -> None:
    losses = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [2.0, 2.0]])
    assert unbeaten(losses).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("kind", ["random", "ties", "trade-off"])
def test_two_costs_take_n_log_n_comparisons(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    pairs, plane = pareto._no_larger, pareto._beaten_in_plane

    def counted_pairs(strong, weak):
        nonlocal compared
        compared += len(strong) * len(weak)
        return pairs(strong, weak)

    def counted_plane(strong, weak):
        nonlocal compared
        compared += len(strong) + len(weak)
        return plane(strong, weak)

    monkeypatch.setattr(pareto, "_no_larger", counted_pairs)
    monkeypatch.setattr(pareto, "_beaten_in_plane", counted_plane)
    for rows in (2000, 16_000):
        compared = 0
        unbeaten(mixed(np.random.default_rng(0), rows, 3, kind))
        assert 0 < compared < 30 * rows * math.log2(rows)


def test_memory_does_not_grow_with_the_square_of_the_history() -> None:
    """Comparing all pairs of 6,000 candidates takes 100 MB."""
    generator = np.random.default_rng(0)
    rows = np.unique(generator.integers(1, 65, size=(6000, 8)), axis=0).tolist()
    known = History(Candidate(i, 0, Structure(row), float(generator.random())) for i, row in enumerate(rows))
    costs = [Cost("first", "", 64.0, lambda rows: rows[:, 0]), Cost("total", "", 512.0, lambda rows: rows.sum(axis=1))]
    tracemalloc.start()
    known.pareto(costs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6
