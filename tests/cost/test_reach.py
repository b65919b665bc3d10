"""Where the smallest structure is too slow, the fastest one tells whether a limit on latency can be met."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.cost.reach import fastest, reachable
from aacp.errors import InfeasibleBudget
from aacp.search.rescaling import Rescaling

SPACE = SearchSpace.from_widths([8, 8, 12], [2, 1, 3])
# A kernel of the first two groups takes longest at few channels; the third takes longer with every channel.
KERNELS = ({2: 9.0, 4: 3.0, 6: 4.0, 8: 6.0}, dict(zip(range(1, 9), (7, 6, 5, 2, 2, 3, 5, 6), strict=True)))


def milliseconds(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array([KERNELS[0][int(a)] + KERNELS[1][int(b)] + int(c) / 3 for a, b, c in counts])


def latency_of(function: Callable[[NDArray[np.int64]], NDArray[np.float64]], space: SearchSpace = SPACE) -> Cost:
    full = float(function(np.array([space.full]))[0])
    return Cost("latency", "s", full / 1e3, lambda counts: function(counts) / 1e3)


LATENCY = latency_of(milliseconds)  # 16 ms; the smallest structure takes 17 ms, the fastest one 3 + 2 + 1 = 6 ms
TOTAL = Cost("channels", "channels", 28.0, lambda counts: counts.sum(axis=1))


def structures(space: SearchSpace) -> list[Structure]:
    """All structures of a space."""
    genes = itertools.product(*map(range, space.levels.tolist()))
    return [space.structure(row) for row in genes]


def test_the_fastest_of_sums_of_kernels_is_the_one_that_trying_all_finds() -> None:
    for seed in range(30):
        times = np.random.default_rng(seed).random((3, 13))
        cost = latency_of(lambda counts, times=times: times[np.arange(3), counts].sum(axis=1))
        every = structures(SPACE)
        best = every[int(np.argmin(cost(np.array(every))))]
        assert fastest(SPACE, cost, Budget()) == best


def test_of_equally_fast_widths_the_narrowest_is_taken() -> None:
    assert fastest(SPACE, LATENCY, Budget()) == Structure([4, 4, 3])


def test_the_descent_starts_from_the_smallest_and_from_the_unpruned_structure() -> None:
    """Both widths together are faster, although neither is alone: first wider ones, then narrower ones."""
    space = SearchSpace.from_widths([4, 4], 1)

    def wide(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where((counts > 2).all(axis=1), counts.sum(axis=1), 9 + counts[:, 0])

    def narrow(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where((counts < 3).all(axis=1), counts.sum(axis=1), 9 - counts[:, 0])

    assert fastest(space, latency_of(wide, space), Budget()) == Structure([3, 3])
    assert fastest(space, latency_of(narrow, space), Budget()) == Structure([1, 1])


def test_the_fastest_structure_keeps_to_other_limits() -> None:
    for most in range(6, 28):
        others = Budget(Limit(TOTAL, at_most=most))
        found = fastest(SPACE, LATENCY, others)
        within = [each for each in structures(SPACE) if sum(each) <= most]
        assert sum(found) <= most
        neighbours = [each for each in within if sum(a != b for a, b in zip(each, found, strict=True)) <= 1]
        assert LATENCY(found) == min(LATENCY(each) for each in neighbours)
    assert fastest(SPACE, LATENCY, Budget(Limit(TOTAL, at_most=8))) == Structure([4, 1, 3])


@pytest.mark.parametrize("limits", [[], [Limit(TOTAL, at_most=6)], [Limit(LATENCY, at_most=17e-3)]])
def test_a_space_whose_smallest_structure_is_fast_enough_is_left_as_it_is(limits: list[Limit]) -> None:
    assert reachable(SPACE, Budget(*limits)) is SPACE


def test_otherwise_the_widths_of_the_fastest_structure_and_all_above_are_left() -> None:
    part = reachable(SPACE, Budget(Limit(LATENCY, at_most=6e-3)))
    assert part.choices == ((4, 6, 8), (4, 5, 6, 7, 8), (3, 6, 9, 12))
    assert part.smallest == Structure([4, 4, 3])
    assert part.full == SPACE.full
    assert structures(part) == [each for each in structures(SPACE) if each[0] >= 4 and each[1] >= 4]


@pytest.mark.parametrize("most", [6.0, 7.5, 12.0])
def test_rescaling_meets_a_limit_that_the_smallest_structure_misses(most: float) -> None:
    budget = Budget(Limit(LATENCY, at_most=most / 1e3), Limit(TOTAL, at_most=20))
    part = reachable(SPACE, budget)
    generator = np.random.default_rng(0)
    rows = Rescaling(part, budget)(generator.integers(part.levels, size=(200, len(part))), generator)
    assert budget.feasible(part.counts(rows)).all()


def test_tied_groups_stay_tied() -> None:
    space = SearchSpace.from_widths([8, 16, 5], [1, 3, 1], ties=[(0, 1)])
    cost = latency_of(lambda counts: 10.0 - np.minimum(counts[:, 0], 4) + counts[:, 2], space)
    part = reachable(space, Budget(Limit(cost, at_most=7e-3)))
    assert part.coordinates == space.coordinates
    assert structures(part) == [each for each in structures(space) if each[0] >= 4]
    assert all(each in part for each in structures(part))


@pytest.mark.parametrize(
    ("limits", "advice", "words"),
    [
        (
            [Limit(LATENCY, at_most=5.9e-3)], "wait",
            "latency: at most 5.9ms cannot be met, since the fastest structure found in this space takes 6 ms, "
            "0.375 of the unpruned network's time. Loosen the limit, or wait.",
        ),
        (
            [Limit(LATENCY, pruning_rate=0.5), Limit(TOTAL, at_most=8)], "",
            "latency: 50 % less cannot be met, since the fastest structure found within the other limits takes 11 ms, "
            "0.688 of the unpruned network's time. Loosen the limit.",
        ),
        (
            [Limit(LATENCY, at_most=6e-3), Limit(TOTAL, at_most=5)], "wait",
            "channels: at most 5 channels cannot be met, since the smallest structure in this space reaches 6 "
            "channels. Loosen the limit, or use a finer pruning step.",
        ),
    ],
)  # fmt: skip
def test_a_limit_that_nothing_meets_is_rejected(limits: list[Limit], advice: str, words: str) -> None:
    with pytest.raises(InfeasibleBudget) as caught:
        reachable(SPACE, Budget(*limits), advice)
    assert str(caught.value) == words
