"""Limits and budgets: all limits hold, and wrong or infeasible ones are rejected early with a message."""

import math

import numpy as np
import pytest

from aacp.bench.networks import vgg16
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit, cost_of
from aacp.errors import InfeasibleBudget, InvalidOption

SPACE = SearchSpace.from_widths([8, 16], pruning_step=1 / 8)


def total() -> Cost:
    return Cost("channels", "channels", 24.0, lambda counts: counts.sum(axis=1))


def test_a_pruning_rate_is_the_share_removed() -> None:
    budget = Budget(Limit(total(), pruning_rate=0.5))
    assert budget.feasible([4, 8])
    assert not budget.feasible([5, 8])


def test_a_cost_equal_to_its_bound_up_to_rounding_meets_it() -> None:
    cost = Cost("third", "", 3.0, lambda counts: counts.sum(axis=1) * (1 / 3) * 3)
    limit = Limit(cost, at_most=11.0)
    assert limit.holds(11.0 * (1 + 5e-10))
    assert not limit.holds(11.0 * (1 + 2e-9))


def test_every_limit_must_hold() -> None:
    first = Cost("first", "channels", 8.0, lambda counts: counts[:, 0])
    budget = Budget(Limit(first, at_most=4), Limit(total(), at_most=12))
    verdict = budget.feasible([[4, 8], [4, 10], [5, 2]])
    assert verdict.tolist() == [True, False, False]


def test_without_limits_everything_is_feasible() -> None:
    assert Budget().feasible([[8, 16], [1, 2]]).all()


def test_not_a_number_is_not_within_a_limit() -> None:
    assert not Limit(total(), at_most=12).holds(np.nan)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, math.nan])
def test_a_rate_outside_its_range_is_rejected(rate: float) -> None:
    with pytest.raises(InvalidOption, match=r"channels: a pruning rate lies in \[0, 1\)"):
        Limit(total(), pruning_rate=rate)


@pytest.mark.parametrize("most", [0.0, -1.0, math.nan, math.inf])
def test_an_absolute_limit_is_a_positive_number(most: float) -> None:
    with pytest.raises(InvalidOption, match="at_most is a positive number"):
        Limit(total(), at_most=most)


def test_both_or_neither_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="both were given"):
        Limit(total(), pruning_rate=0.5, at_most=12)
    with pytest.raises(InvalidOption, match="neither was given"):
        Limit(total())


def test_a_share_of_nothing_is_rejected() -> None:
    free = Cost("gift", "", 0.0, lambda counts: counts.sum(axis=1) * 0)
    with pytest.raises(InvalidOption, match="Use at_most"):
        Limit(free, pruning_rate=0.5)


def test_only_limits_make_a_budget() -> None:
    with pytest.raises(InvalidOption, match="made of limits"):
        Budget(total())  # type: ignore[arg-type]


def test_an_infeasible_budget_names_the_tightest_reachable_value_of_each_limit() -> None:
    budget = Budget(Limit(total(), pruning_rate=0.5), Limit(total(), pruning_rate=0.98), Limit(total(), at_most=2))
    with pytest.raises(InfeasibleBudget) as caught:
        budget.check(SPACE)
    message = str(caught.value)
    assert "a pruning rate of 0.98 cannot be met, since the smallest structure in this space reaches 0.875" in message
    assert "at most 2 channels cannot be met, since the smallest structure in this space reaches 3" in message
    assert "a pruning rate of 0.5 can be met (the smallest structure: 0.875). Loosen" in message
    assert message.endswith("Loosen the limit, or use a finer pruning step.")


def test_an_infeasible_latency_advises_to_find_fast_widths() -> None:
    latency = Cost("latency", "s", 24.0, lambda counts: counts.sum(axis=1))
    with pytest.raises(InfeasibleBudget, match="--step auto"):
        Budget(Limit(latency, pruning_rate=0.98)).check(SPACE)


def test_a_feasible_budget_passes_in_silence() -> None:
    Budget(Limit(total(), at_most=3)).check(SPACE)


def test_a_plain_function_becomes_a_cost_and_is_called_once_for_each_structure() -> None:
    calls = []

    def function(structure) -> float:
        calls.append(structure.counts)
        return structure[0] * structure[1]

    cost = cost_of(function, SPACE, "area", "mm2")
    assert cost.full == 128
    assert cost([[2, 2], [2, 4], [2, 2]]).tolist() == [4, 8, 4]
    assert float(cost([2, 4])) == 8
    assert sorted(calls) == [(2, 2), (2, 4), (8, 16)]


def test_slack_is_a_share_of_the_unpruned_cost() -> None:
    limit = Limit(total(), pruning_rate=0.5)
    assert limit.slack([3, 6]) == pytest.approx(3 / 24)


def test_what_a_structure_reaches_is_in_the_terms_of_the_limit() -> None:
    assert Limit(total(), pruning_rate=0.5).reached(SPACE.snap([3, 6])) == "channels -62.5 %"  # 9 of 24
    assert Limit(total(), at_most=12).reached(SPACE.snap([3, 6])) == "channels 9 channels"


def test_a_rate_and_its_absolute_bound_are_the_same_limit() -> None:
    macs = vgg16().macs()
    space = SearchSpace.from_widths(vgg16().widths)
    rows = space.counts(np.random.default_rng(0).integers(space.levels, size=(200, len(space))))
    by_rate, by_bound = Limit(macs, pruning_rate=0.6), Limit(macs, at_most=0.4 * macs.full)
    assert (by_rate.holds(macs(rows)) == by_bound.holds(macs(rows))).all()
    assert 0 < by_rate.holds(macs(rows)).mean() < 1
