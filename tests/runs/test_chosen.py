"""The limits of the chosen structure: what was reached, and how it is shown."""

from __future__ import annotations

import pytest

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Limit, cost_of
from aacp.runs.chosen import ChosenStructure, LimitResult


@pytest.mark.parametrize("bound", [{"pruning_rate": 0.5}, {"at_most": 7.0}])
def test_what_was_reached_says_the_same_as_the_limit_itself(bound: dict[str, float]) -> None:
    space = SearchSpace.from_widths([8, 8], 1)
    limit = Limit(cost_of(lambda structure: float(sum(structure)), space, "channels", "channels"), **bound)
    for counts in ((1, 2), (4, 4), (3, 4), (5, 6)):
        structure = Structure(counts)
        reached = LimitResult.of(limit, structure)
        assert reached.reached == sum(counts)
        assert reached.holds == bool(limit.holds(limit.cost(structure)))
        assert reached.slack == pytest.approx(float(limit.slack(structure)))


def test_a_cost_that_the_unpruned_network_does_not_have_is_shown_without_a_share() -> None:
    choice = ChosenStructure((1,), 0.5, (LimitResult("joules", "J", None, 2.0, 0.0, 2.0, 0.0),))
    assert str(choice).splitlines()[0] == "joules: 0 -> 0 J, at most 2 J"


@pytest.mark.parametrize(
    ("measured", "words"),
    [(True, ", measured end to end"), (False, ", predicted, to be checked on the device"), (None, "")],
)
def test_a_latency_says_whether_it_was_measured(measured: bool | None, words: str) -> None:
    result = LimitResult("latency", "s", 0.4, None, 4.39e-3, 2.634e-3, 2.5e-3, measured)
    assert str(result) == f"latency: 4.39 -> 2.5 ms (-43.1%), at most 2.63 ms{words}"
